#include "collective/comm.h"
