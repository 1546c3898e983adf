#include "batch/batch.h"
