package api

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
)

// Package control compares agents with its protocol version. It must be the version
// that the API uses.
func TestProtocolVersionsAgree(t *testing.T) {
	if control.Protocol != wire.Protocol {
		t.Errorf("control.Protocol is %s, wire.Protocol is %s", control.Protocol, wire.Protocol)
	}
}
