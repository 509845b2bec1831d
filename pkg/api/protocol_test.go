package api

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
)

// What agents are measured by is what they are spoken to in.
func TestProtocolVersionsAgree(t *testing.T) {
	if control.Protocol != wire.Protocol {
		t.Errorf("agents that speak less than %s are outdated, and the API speaks %s", control.Protocol, wire.Protocol)
	}
}
