#include "batch/jagged.h"
