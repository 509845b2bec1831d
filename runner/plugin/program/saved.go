package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/plugin"
)

// header is the first line of a saved plan: for what the plan was made. The program's file follows. A person approves the digest of
// both, so an approved plan cannot be applied to another component or by another program.
type header struct {
	V         int                `json:"v"` // 1
	Type      string             `json:"type"`
	Operation string             `json:"operation"`
	Install   fairlead.InstallID `json:"install"`
	Component string             `json:"component"`
	Source    string             `json:"source"` // digest of the artifact
}

const headerVersion = 1

// maxHeader bounds the header of a saved plan, in bytes.
const maxHeader = 4 << 10

func headerOf(spec plugin.Spec, operation string) header {
	return header{V: headerVersion, Type: spec.Plugin, Operation: operation, Install: spec.Install, Component: spec.Component, Source: artifactOf(spec.Artifact)}
}

func artifactOf(ref *events.ArtifactRef) string { return ref.Digest }

// readPlan returns the saved plan: the header, and the file that the program wrote.
func (r *run) readPlan() ([]byte, error) {
	head, err := json.Marshal(headerOf(r.spec, r.spec.Operation))
	if err != nil {
		return nil, fmt.Errorf("encode the saved plan: %w", err)
	}
	if len(head) >= maxHeader {
		return nil, fmt.Errorf("encode the saved plan: its header has %d bytes", len(head))
	}
	f, err := safefile.Open(r.path(planFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, violated(r.p.kind, &pluginprotocol.Violation{Message: "it finished a plan and wrote no saved plan to the file that the request names"})
	}
	if err != nil {
		return nil, violated(r.p.kind, &pluginprotocol.Violation{Message: fmt.Sprintf("the saved plan cannot be read: %v", err)})
	}
	defer f.Close()
	b := bytes.NewBuffer(append(head, '\n'))
	n, err := io.Copy(b, io.LimitReader(f, pluginprotocol.MaxPlan-maxHeader+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the saved plan: %w", err)
	case n == 0:
		return nil, violated(r.p.kind, &pluginprotocol.Violation{Message: "it finished a plan with an empty saved plan"})
	case n > pluginprotocol.MaxPlan-maxHeader:
		return nil, plugin.Errorf(fairlead.ReasonPlanTooLarge, "the saved plan is larger than %d bytes, so it was not kept and cannot be applied: the plugin must write a smaller one", pluginprotocol.MaxPlan-maxHeader)
	}
	return b.Bytes(), nil
}

// open returns the program's part of a saved plan. It refuses a plan that was made for another component, source or operation than
// those of spec.
func open(saved []byte, spec plugin.Spec) ([]byte, error) {
	line, content, ok := bytes.Cut(saved[:min(len(saved), maxHeader)], []byte{'\n'})
	if ok {
		content = saved[len(line)+1:]
	}
	var got header
	if !ok || json.Unmarshal(line, &got) != nil || got.V != headerVersion {
		return nil, plugin.Errorf(fairlead.ReasonPlanElsewhere, "the saved plan was made by another version of the runner. Nothing was applied: a new plan is needed")
	}
	planned := string(job.OpPlan)
	if spec.Operation == string(job.OpDestroy) {
		planned = string(job.OpPlanDestroy)
	}
	if want := headerOf(spec, planned); got != want {
		return nil, plugin.Errorf(fairlead.ReasonPlanStale, "the saved plan is the %s of component %s of install %s with the source %s, and this job is the %s of component %s of install %s with the source %s. Nothing was applied: plan again",
			got.Operation, got.Component, got.Install, got.Source, spec.Operation, want.Component, want.Install, want.Source)
	}
	return content, nil
}
