package enginetest_test

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

func TestMemoryConforms(t *testing.T) {
	enginetest.Run(t, func(*testing.T) engine.Engine { return enginetest.Memory() }, enginetest.Options{})
}
