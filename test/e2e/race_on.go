//go:build linux && race

package e2e

import "github.com/fairlead/fairlead/tools/program"

// raceFlags are the build flags of the programs: with the race detector, as for the test.
var raceFlags = program.Race()
