package runners

import (
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// RegistryOf returns the registry in which a runner keeps the images of installs; nil: it has none. It does not open the
// sealed configuration, because a registry has no secrets.
func RegistryOf(r store.Runner) (runnerspec.ImageRegistry, error) {
	if len(r.Config) == 0 { // created before runners had a configuration
		return nil, nil
	}
	var config struct {
		Registry json.RawMessage `json:"registry"`
	}
	if err := json.Unmarshal(r.Config, &config); err != nil {
		return nil, fmt.Errorf("decode the configuration of runner %s: %w", r.Name, err)
	}
	if len(config.Registry) == 0 {
		return nil, nil
	}
	return runnerspec.DecodeRegistry(config.Registry)
}

// serves refuses a configuration with a registry that this control plane does not have.
func (f *Fleet) serves(spec *runnerspec.Spec) error {
	if spec.Registry == nil || spec.Registry.Kind() != runnerspec.ControlPlaneRegistry || f.Images {
		return nil
	}
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidRunner,
		Message: "registry.type is control-plane, but this control plane serves no registry for images",
		Hint:    "Use oci or ecr, with a registry that the customer's cluster can pull from."}
}
