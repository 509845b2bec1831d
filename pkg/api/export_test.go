package api

import (
	"fmt"
	"log/slog"
)

// Documents returns the OpenAPI 3.1 documents of both APIs as YAML, by name.
func Documents() (map[string][]byte, error) {
	// The handlers are not called, so they need no control plane.
	o := Options{Logger: slog.New(slog.DiscardHandler)}
	out := map[string][]byte{}
	for name, s := range map[string]*server{"control": newControlServer(o), "runner": newRunnerServer(o)} {
		doc, err := s.document().YAML()
		if err != nil {
			return nil, fmt.Errorf("write the OpenAPI document of the %s API: %w", name, err)
		}
		out[name] = doc
	}
	return out, nil
}
