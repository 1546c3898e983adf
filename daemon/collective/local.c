#include "collective/engine.h"
