package accesstest_test

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/accesstest"
)

func TestMemory(t *testing.T) {
	accesstest.Run(t, accesstest.Harness{Open: func(*testing.T) identity.Granter { return &accesstest.Memory{} }})
}
