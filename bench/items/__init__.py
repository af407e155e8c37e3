"""Items of several columns, as trajectory writers make them."""
