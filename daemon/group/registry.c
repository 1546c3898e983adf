#include "group/registry.h"
