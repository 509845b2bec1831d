package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
	"github.com/fairlead/fairlead/runner/kubernetes/helm"
	"github.com/fairlead/fairlead/runner/kubernetes/manifest"
)

// answer serves one request of the CLI.
func answer(name string) error {
	if name != bundle.Rendered {
		return fmt.Errorf("the program has no request %q: without arguments it speaks the protocol of plugins", name)
	}
	text, err := io.ReadAll(io.LimitReader(os.Stdin, pluginprotocol.MaxRequest))
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	var req struct {
		bundle.RenderRequest
		Vars    json.RawMessage `json:"vars"`
		Options settings        `json:"options"`
	}
	if err := json.Unmarshal(text, &req); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	out := bundle.RenderAnswer{Images: []bundle.Found{}}
	found, err := rendered(req.RenderRequest, req.Vars, req.Options)
	if err != nil {
		out.Error = err.Error()
	}
	out.Images = append(out.Images, found...)
	line, err := bundle.Answer(out)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	_, err = os.Stdout.Write(line)
	return err
}

// rendered returns the images of a component's objects, which it renders without a cluster.
func rendered(req bundle.RenderRequest, raw json.RawMessage, s settings) (found []bundle.Found, err error) {
	vars := map[string]any{}
	if len(raw) > 0 {
		decoded, err := decode(raw)
		if err != nil {
			return nil, err
		}
		vars, _ = decoded.(map[string]any)
	}
	if s.Namespace == "" {
		s.Namespace = bundle.Placeholder
	}
	if req.Type == component.Helm {
		chart, err := helm.Load(req.Source)
		if err != nil {
			return nil, err
		}
		if s.Release == "" {
			s.Release = req.Component
		}
		images, err := helm.Images(chart, s.Release, s.Namespace, vars)
		for _, i := range images {
			found = append(found, bundle.Found(i))
		}
		return found, err
	}
	objects, err := manifest.Parse(os.DirFS(req.Source))
	if err != nil {
		return nil, err
	}
	if err := manifest.Substitute(objects, vars); err != nil {
		return nil, err
	}
	for _, i := range manifest.Images(objects) {
		found = append(found, bundle.Found(i))
	}
	return found, nil
}
