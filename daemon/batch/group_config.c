#include "batch/group_config.h"
