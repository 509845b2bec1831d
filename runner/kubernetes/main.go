// Command kubernetes is the plugin of the component types manifest and helm: a program of its own, so that no step has the
// clients of Kubernetes and Helm in its memory. It speaks package pluginprotocol.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
	"github.com/fairlead/fairlead/pkg/pluginprotocol/serve"
	"github.com/fairlead/fairlead/runner/internal/redact"
	"github.com/fairlead/fairlead/runner/kubernetes/cluster"
	"github.com/fairlead/fairlead/runner/kubernetes/eks"
	"github.com/fairlead/fairlead/runner/kubernetes/helm"
	"github.com/fairlead/fairlead/runner/kubernetes/manifest"
	"github.com/fairlead/fairlead/runner/kubernetes/podimage"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Version is the release.
var Version = "dev"

func main() {
	if len(os.Args) > 1 {
		if err := answer(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	handlers := map[pluginprotocol.Operation]serve.Handler{}
	for _, op := range pluginprotocol.Operations() {
		handlers[op] = handle
	}
	serve.Main(serve.Plugin{Name: "kubernetes", Version: Version, Types: []string{component.Manifest, component.Helm}, Operations: handlers})
}

func handle(ctx context.Context, req pluginprotocol.Request, out *serve.Emitter) error {
	do := apply
	if req.Operation.Plans() {
		do = plan
	}
	err := do(ctx, req, out)
	if e, ok := errors.AsType[*plugin.Error](err); ok {
		reason := e.Reason
		if reason == fairlead.ReasonStale || reason == fairlead.ReasonPlanDigest { // of the step's lease, and of the step's check of the plan
			reason = fairlead.ReasonPlanStale
		}
		return &serve.Failure{Reason: reason, Message: e.Message, Err: err}
	}
	return err
}

// settings are a component's options, with the defaults of this install.
type settings struct {
	Namespace string `json:"namespace"`
	Release   string `json:"release,omitempty"`
	Timeout   string `json:"timeout,omitempty"`
	Rollback  bool   `json:"rollback,omitempty"`

	Endpoint   string `json:"cluster_endpoint,omitempty"`
	CA         string `json:"cluster_ca,omitempty"`
	EKSCluster string `json:"eks_cluster,omitempty"`
	EKSRegion  string `json:"eks_region,omitempty"`

	Images   map[string]string `json:"images,omitempty"`
	Registry string            `json:"registry,omitempty"`
}

// config returns the connection to the cluster: the one that the options name, or the one of the environment.
func (s settings) config(ctx context.Context) (*rest.Config, error) {
	from := cluster.Source{Endpoint: s.Endpoint, CA: s.CA, Token: os.Getenv("KUBE_TOKEN"), Kubeconfig: os.Getenv("KUBECONFIG"), Context: os.Getenv("KUBE_CTX")}
	if s.EKSCluster != "" {
		var err error
		if from.Tokens, err = eks.Tokens(ctx, s.EKSCluster, s.EKSRegion, time.Now); err != nil {
			return nil, err
		}
	}
	return cluster.Config(from)
}

func (s settings) timeout() (time.Duration, error) {
	if s.Timeout == "" {
		return 0, nil // the engine's default
	}
	d, err := time.ParseDuration(s.Timeout)
	if err != nil || d <= 0 {
		return 0, plugin.Errorf(fairlead.ReasonSpecInvalid, "the option timeout is %.100q, want a duration such as 10m", s.Timeout)
	}
	return d, nil
}

func settingsOf(req pluginprotocol.Request) (settings, error) {
	s := settings{Namespace: req.InstallName}
	if req.Type == component.Helm {
		s.Release = req.Component
	}
	if len(req.Options) > 0 {
		if err := json.Unmarshal(req.Options, &s); err != nil {
			return s, &plugin.Error{Reason: fairlead.ReasonSpecInvalid, Err: err, Message: fmt.Sprintf("the options of component %s cannot be read: %v", req.Component, err)}
		}
	}
	return s, nil
}

// savedPlan is the content of the plan file. An apply gets nothing but this file, so it has the settings too.
type savedPlan struct {
	Type     string   `json:"type"`
	Settings settings `json:"settings"`
	Plan     []byte   `json:"plan"` // of the engine
}

// planned is the result of a plan of either engine.
type planned struct {
	saved   []byte
	noOp    bool
	changes []changeset.Change
	base    *changeset.Base
	outputs map[string]any // of what exists, if nothing changes: no apply follows that would send them
}

func plan(ctx context.Context, req pluginprotocol.Request, out *serve.Emitter) error {
	s, err := settingsOf(req)
	if err != nil {
		return err
	}
	cfg, err := s.config(ctx)
	if err != nil {
		return err
	}
	p, err := planOf(ctx, cfg, req, s)
	if err != nil {
		return err
	}
	s.Images = nil // the plan has what replaced them
	saved, err := json.Marshal(savedPlan{Type: req.Type, Settings: s, Plan: p.saved})
	if err != nil {
		return fmt.Errorf("encode the plan: %w", err)
	}
	if err := os.WriteFile(req.Plan, saved, 0o600); err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	for _, c := range p.changes {
		fmt.Fprintf(os.Stderr, "%s %s\n", c.Action, c.Address) // the step masks the log
		if err := out.Change(c); err != nil {
			return err
		}
	}
	if p.base != nil {
		if err := out.Base(*p.base); err != nil {
			return err
		}
	}
	if !p.noOp {
		return nil
	}
	fmt.Fprintln(os.Stderr, "No changes.")
	out.NoOp()
	return sendOutputs(out, p.outputs)
}

func sendOutputs(out *serve.Emitter, outputs map[string]any) error {
	for name, value := range outputs {
		if err := out.Output(name, value, false); err != nil {
			return err
		}
	}
	return nil
}

// objectOutputs are the outputs of a component of type manifest.
func objectOutputs(s settings) map[string]any { return map[string]any{"namespace": s.Namespace} }

func planOf(ctx context.Context, cfg *rest.Config, req pluginprotocol.Request, s settings) (planned, error) {
	vars := make(map[string]any, len(req.Vars))
	var secrets []json.RawMessage
	for name, v := range req.Vars {
		value, err := decode(v.Value)
		if err != nil {
			return planned{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the variable %s is not JSON", name)
		}
		if vars[name] = value; v.Sensitive {
			secrets = append(secrets, v.Value)
		}
	}
	mask := redact.New(secrets...).String
	destroys := req.Operation == pluginprotocol.PlanDestroy
	if req.Type == component.Helm {
		e, err := releaseOf(cfg, req, s, mask)
		if err != nil {
			return planned{}, err
		}
		var chart *helm.Chart
		if !destroys {
			if chart, err = helm.Load(req.Source); err != nil {
				return planned{}, err
			}
		}
		e.Images = podimage.New(s.Images, s.Registry)
		p, err := e.Plan(ctx, chart, vars, destroys)
		return planned{p.Saved, p.NoOp, p.Changes, p.Base, p.Outputs}, err
	}
	e, err := objectsOf(cfg, req, s, mask)
	if err != nil {
		return planned{}, err
	}
	var objects []manifest.Object
	if !destroys {
		if objects, err = manifest.Parse(os.DirFS(req.Source)); err != nil {
			return planned{}, err
		}
		if err := manifest.Substitute(objects, vars); err != nil {
			return planned{}, err
		}
		if err := manifest.ReplaceImages(objects, podimage.New(s.Images, s.Registry)); err != nil {
			return planned{}, err
		}
	}
	var outputs map[string]any
	if !destroys {
		outputs = objectOutputs(s)
	}
	p, err := e.Plan(ctx, objects, destroys)
	return planned{p.Saved, p.NoOp, p.Changes, p.Base, outputs}, err
}

func apply(ctx context.Context, req pluginprotocol.Request, out *serve.Emitter) error {
	text, err := os.ReadFile(req.Plan)
	if err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	var saved savedPlan
	if err := json.Unmarshal(text, &saved); err != nil || saved.Type != req.Type {
		return plugin.Errorf(fairlead.ReasonPlanStale, "the saved plan is not one of type %s: plan again", req.Type)
	}
	cfg, err := saved.Settings.config(ctx)
	if err != nil {
		return err
	}
	begins := &start{out: out}
	ctx, begins.stop = context.WithCancelCause(ctx)
	defer begins.stop(nil)
	same := func(text string) string { return text } // the step masks the log
	if req.Type == component.Helm {
		e, err := releaseOf(cfg, req, saved.Settings, same)
		if err != nil {
			return err
		}
		done, err := e.Apply(ctx, saved.Plan, begins.mutating)
		if err != nil {
			return err
		}
		return sendOutputs(out, done.Outputs)
	}
	e, err := objectsOf(cfg, req, saved.Settings, same)
	if err != nil {
		return err
	}
	if err := e.Apply(ctx, saved.Plan, begins.mutating); err != nil || req.Operation == pluginprotocol.Destroy {
		return err
	}
	return sendOutputs(out, objectOutputs(saved.Settings))
}

// start states once that the first change begins. If the step does not learn of it, start ends the operation before the change.
type start struct {
	out   *serve.Emitter
	stop  context.CancelCauseFunc
	begun bool
}

func (s *start) mutating() {
	if s.begun {
		return
	}
	s.begun = true
	if err := s.out.Mutating(); err != nil {
		s.stop(err)
	}
}

func releaseOf(cfg *rest.Config, req pluginprotocol.Request, s settings, mask func(string) string) (*helm.Engine, error) {
	timeout, err := s.timeout()
	return &helm.Engine{Config: cfg, Log: os.Stderr, Mask: mask, Owner: helm.Owner{Install: req.Install, Component: req.Component},
		Release: s.Release, Namespace: s.Namespace, Job: req.Job, Epoch: req.Epoch,
		Options: helm.Options{Timeout: timeout, RollbackOnFailure: s.Rollback}}, err
}

func objectsOf(cfg *rest.Config, req pluginprotocol.Request, s settings, mask func(string) string) (manifest.Engine, error) {
	timeout, err := s.timeout()
	return manifest.Engine{Config: cfg, Log: os.Stderr, Mask: mask, Now: time.Now, Owner: manifest.Owner{Install: req.Install, Component: req.Component},
		Namespace: s.Namespace, Attempt: manifest.Attempt{Job: req.Job, Epoch: req.Epoch},
		Limits: manifest.Limits{Ready: timeout, Delete: timeout}}, err
}
