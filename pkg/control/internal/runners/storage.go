package runners

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// StorageOf returns the kind and place of a runner's state storage.
func StorageOf(r store.Runner) placement.Storage {
	s := placement.Storage{Kind: r.Storage, Place: r.Place}
	if r.Place == "" && r.Storage == string(runnerspec.LocalState) { // created before runners had a configuration
		s.Place = (&runnerspec.LocalStorage{}).Place(string(r.ID))
	}
	return s
}

// StorageConfig returns the configuration of a runner's state storage. It does
// not open the sealed configuration, because a state storage has no secrets.
func StorageConfig(r store.Runner) (runnerspec.Storage, error) {
	switch kind := runnerspec.StorageKind(r.Storage); {
	case kind == runnerspec.HTTPState:
		return &runnerspec.HTTPStorage{StorageCommon: runnerspec.StorageCommon{Type: kind}}, nil
	case kind == runnerspec.LocalState && len(r.Config) == 0: // created before runners had a configuration
		return &runnerspec.LocalStorage{StorageCommon: runnerspec.StorageCommon{Type: kind}}, nil
	}
	var config struct {
		Storage json.RawMessage `json:"state_storage_configuration"`
	}
	if err := json.Unmarshal(r.Config, &config); err != nil {
		return nil, fmt.Errorf("decode the configuration of runner %s: %w", r.Name, err)
	}
	return runnerspec.DecodeStorage(config.Storage)
}

// StorageJSON returns the configuration of a runner's state storage for a binding. The
// binding keeps a copy: if the runner later gets another storage, only the copy describes
// how to reach the existing states.
func StorageJSON(r store.Runner) (json.RawMessage, error) {
	s, err := StorageConfig(r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// BoundStorage returns the storage that holds the states of a binding.
func BoundStorage(b store.Binding) (runnerspec.Storage, error) {
	if len(b.State) > 0 {
		return runnerspec.DecodeStorage(b.State)
	}
	// This binding was written when there were only two kinds of storage. Such a binding
	// describes its storage completely.
	common := runnerspec.StorageCommon{Type: runnerspec.StorageKind(b.Storage.Kind)}
	switch common.Type {
	case runnerspec.HTTPState:
		return &runnerspec.HTTPStorage{StorageCommon: common}, nil
	case runnerspec.LocalState:
		_, path, _ := strings.Cut(b.Storage.Place, ":")
		return &runnerspec.LocalStorage{StorageCommon: common, Path: path}, nil
	}
	return nil, fmt.Errorf("the binding to runner %s does not contain the configuration of %s", b.Name, b.Storage)
}
