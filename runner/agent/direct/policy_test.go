package direct

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// The agent next to the control plane is the vendor's, so it must not seem to enforce a policy of a customer.
func TestDirectAgentTakesNoPolicy(t *testing.T) {
	s := &server{o: Options{Environ: []string{"FAIRLEAD_AGENT_CONFIG={policy: 'file:/p', runner_configuration: {type: kubernetes}}"}}}
	if _, err := s.file(runnerspec.Kubernetes); err == nil || !strings.Contains(err.Error(), "enforces no policy of a customer") {
		t.Errorf("a file with a policy: %v", err)
	}
	s.o.Environ = []string{"FAIRLEAD_AGENT_CONFIG={runner_configuration: {type: kubernetes}}"}
	if _, err := s.file(runnerspec.Kubernetes); err != nil {
		t.Errorf("a file without one: %v", err)
	}
}
