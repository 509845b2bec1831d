package controltest_test

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/control/controltest"
)

func TestKeysConform(t *testing.T) {
	keys := controltest.NewKeys()
	controltest.SigningKeys(t, keys, func() control.SigningKeys { return keys })
}
