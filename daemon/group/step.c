#include "group/step.h"
