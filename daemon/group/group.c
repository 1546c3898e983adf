#include "group/group.h"
