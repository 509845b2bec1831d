package eventbustest

import (
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/eventbus"
)

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) (eventbus.Bus, func() []events.Domain) {
		m := Memory()
		return m, m.next
	})
}
