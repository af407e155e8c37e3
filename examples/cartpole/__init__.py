"""DQN on CartPole through Reverie: two actors, a prioritized replay, a learner, and weights that travel by a table."""
