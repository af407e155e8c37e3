/* Everything: what a program includes. */
#ifndef REVERIE_H
#define REVERIE_H

#include "reverie/checkpoint.h"
#include "reverie/client.h"
#include "reverie/env.h"
#include "reverie/journal.h"
#include "reverie/patterns.h"
#include "reverie/sampler.h"
#include "reverie/security.h"
#include "reverie/server.h"
#include "reverie/spill.h"
#include "reverie/status.h"
#include "reverie/step_writer.h"
#include "reverie/store.h"
#include "reverie/structured_writer.h"
#include "reverie/table.h"
#include "reverie/tensor.h"
#include "reverie/transitions.h"
#include "reverie/version.h"
#include "reverie/writer.h"

#endif
