// Command images is the plugin of the component types image, docker-build and bundle: a program of its own, so that no step has the clients of registries and
// of Sigstore in its memory. It speaks package pluginprotocol.
package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/regclient/regclient/types/ref"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
	"github.com/fairlead/fairlead/pkg/pluginprotocol/serve"
	"github.com/fairlead/fairlead/runner/images/ecr"
	"github.com/fairlead/fairlead/runner/images/mirror"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Version is the release.
var Version = "dev"

func main() {
	if len(os.Args) > 1 {
		if err := answer(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			if errors.Is(err, mirror.ErrAbsent) {
				os.Exit(bundle.ExitAbsent)
			}
			os.Exit(1)
		}
		return
	}
	handlers := map[pluginprotocol.Operation]serve.Handler{}
	for _, op := range pluginprotocol.Operations() {
		handlers[op] = handle
	}
	serve.Main(serve.Plugin{Name: "images", Version: Version, Types: []string{component.Image, component.DockerBuild, component.Bundle}, Operations: handlers})
}

func handle(ctx context.Context, req pluginprotocol.Request, out *serve.Emitter) error {
	var err error
	if req.Operation.Plans() {
		err = plan(ctx, req, out)
	} else {
		err = apply(ctx, req, out)
	}
	if e, ok := errors.AsType[*plugin.Error](err); ok {
		return &serve.Failure{Reason: e.Reason, Message: e.Message, Err: err}
	}
	return err
}

// connection is the install's registry, for one job.
type connection struct {
	target mirror.Target
	logins map[string]mirror.Login
	cas    map[string]string // certificates in PEM by the registry's name; without one: those that the machine trusts
	built  *mirror.Target    // where the image of a build is; nil: the component has none
	ecr    *ecr.Registry     // nil: another kind of registry
	mirror mirror.Target     // zero: the registry of a control plane, in which a job reads no repository of others
}

// connect reads the login that the request names. It makes requests only to ECR.
func connect(ctx context.Context, req pluginprotocol.Request) (*connection, error) {
	r := req.Registry
	if req.Type == component.DockerBuild && (req.Image == nil || req.Image.URL == "" || req.Image.Repository == "") {
		return nil, plugin.Errorf(fairlead.ReasonSpecInvalid, "the request names no image of a build: update the runner")
	}
	if r == nil || r.URL == "" || r.Repository == "" {
		return nil, plugin.Errorf(fairlead.ReasonSpecInvalid, "the request names no registry: set registry in the runner's configuration")
	}
	c := &connection{target: mirror.Target{URL: r.URL, Repository: r.Repository}, logins: map[string]mirror.Login{}, cas: map[string]string{}}
	if r.Kind != "control-plane" {
		c.mirror = c.target.Mirrored()
	}
	if err := c.useBuilt(req.Image, r.Kind); err != nil {
		return nil, err
	}
	if r.CA != "" {
		text := os.Getenv(r.CA)
		if text == "" {
			return nil, plugin.Errorf(fairlead.ReasonEnvInvalid, "the variable %s, which registry.ca of the runner's configuration names, is not set: give it to the jobs, in job.environment, or under secrets in the agent's file", r.CA)
		}
		if !x509.NewCertPool().AppendCertsFromPEM([]byte(text)) {
			return nil, plugin.Errorf(fairlead.ReasonEnvInvalid, "the variable %s, which registry.ca of the runner's configuration names, has no certificate in PEM: set it to the whole text of the CA's PEM file", r.CA)
		}
		c.cas[c.target.Host()] = text
	}
	if r.Login != "" {
		text, ok := os.LookupEnv(r.Login)
		if !ok || text == "" {
			return nil, plugin.Errorf(fairlead.ReasonEnvInvalid, "the variable %s, which registry.credentials of the runner's configuration names, is not set: give it to the jobs, in job.secrets", r.Login)
		}
		logins, err := mirror.ParseLogins(c.target.Host(), text)
		if err != nil {
			return nil, plugin.Errorf(fairlead.ReasonEnvInvalid, "the variable %s has no login to a registry: %v", r.Login, err)
		}
		maps.Copy(c.logins, logins)
	}
	if r.Kind != "ecr" {
		return c, nil
	}
	registry, err := ecr.Open(ctx, r.Region)
	if err != nil {
		return nil, err
	}
	user, password, err := registry.Login(ctx)
	if err != nil {
		return nil, err
	}
	c.ecr, c.logins[c.target.Host()] = registry, mirror.Login{Username: user, Password: password}
	return c, nil
}

// useBuilt reads the login to the image that a build has made. kind is that of the install's registry.
func (c *connection) useBuilt(image *pluginprotocol.Image, kind string) error {
	if image == nil {
		return nil
	}
	c.built = &mirror.Target{URL: image.URL, Repository: image.Repository}
	if kind == "ecr" && c.built.Host() == c.target.Host() {
		// In one account, both are in the same registry, and each repository has a login of its own. Logins are by the
		// registry's name, so the image's registry is named with its port.
		c.built.URL += ":443"
	}
	host := c.built.Host()
	logins, err := mirror.ParseLogins(host, os.Getenv(image.Login))
	if err != nil {
		return plugin.Errorf(fairlead.ReasonSpecInvalid, "the variable %s has no login to the component's image: %v", image.Login, err)
	}
	c.logins[host] = logins[host]
	if image.CA != "" {
		c.cas[host] = os.Getenv(image.CA)
	}
	return nil
}

// builtSource returns the image that a build has made, with the options of the component.
func builtSource(req pluginprotocol.Request, at mirror.Target) (mirror.Source, error) {
	var options struct {
		Keep *int `json:"keep"`
	}
	if len(req.Options) > 0 {
		if err := json.Unmarshal(req.Options, &options); err != nil {
			return mirror.Source{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the option keep of the component is no whole number")
		}
	}
	return mirror.Built(at, req.Image.Digest, options.Keep)
}

func (c *connection) engine(sources ...ref.Ref) *mirror.Engine {
	return &mirror.Engine{Mirror: c.mirror, Client: mirror.NewClient(c.target, mirror.Options{Logins: c.logins, CAs: c.cas, Source: c.built, UserAgent: "fairlead-runner/" + Version}, sources...), Target: c.target, Log: os.Stderr}
}

func plan(ctx context.Context, req pluginprotocol.Request, out *serve.Emitter) error {
	c, err := connect(ctx, req)
	if err != nil {
		return err
	}
	var p mirror.Planned
	switch {
	case req.Operation == pluginprotocol.PlanDestroy:
		p, err = c.engine().PlanDestroy(ctx)
	case req.Type == component.Bundle:
		p, err = planSet(ctx, c, req.Source)
	default:
		var src mirror.Source
		vars := make(map[string]json.RawMessage, len(req.Vars))
		for name, v := range req.Vars {
			vars[name] = v.Value
		}
		if req.Type == component.DockerBuild {
			src, err = builtSource(req, *c.built)
		} else {
			src, err = mirror.Read(os.DirFS(req.Source), vars)
		}
		if err != nil {
			return err
		}
		if src, err = fromLock(src, req.Options); err != nil {
			return err
		}
		p, err = c.engine(src.Image).Plan(ctx, src)
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(req.Plan, p.Saved, 0o600); err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	for _, ch := range p.Changes {
		text, err := json.Marshal(ch.After)
		if err != nil {
			return fmt.Errorf("encode a change: %w", err)
		}
		fmt.Fprintf(os.Stderr, "%s %s %s\n", ch.Action, ch.Address, text)
		if err := out.Change(ch); err != nil {
			return err
		}
	}
	if p.NoOp {
		fmt.Fprintln(os.Stderr, "No changes.")
		out.NoOp()
		return emit(out, p.Outputs, p.Copies)
	}
	return emitChanges(out, p)
}

// fromLock returns the source with the image by which the option images replaces its image: the copy in the install's registry that
// a closed app has made. Without the option, the image stays.
func fromLock(src mirror.Source, options json.RawMessage) (mirror.Source, error) {
	var of struct {
		Images map[string]string `json:"images"`
	}
	if len(options) > 0 {
		if err := json.Unmarshal(options, &of); err != nil {
			return src, plugin.Errorf(fairlead.ReasonSpecInvalid, "the options cannot be read: %v", err)
		}
	}
	if of.Images == nil {
		return src, nil
	}
	named := src.Image.CommonName()
	normal, err := bundle.Normalize(named)
	if err != nil {
		return src, plugin.Errorf(fairlead.ReasonArtifactInvalid, "%s: %q is no reference of an image: %v", mirror.File, named, err)
	}
	locked, ok := of.Images[normal]
	if !ok {
		return src, plugin.Errorf(fairlead.ReasonImageNotInBundle, "%s names the image %s, which the lock of the app does not have. Nothing was copied", mirror.File, named)
	}
	src.Image, err = ref.New(locked)
	return src, err
}

// planSet plans the copies of the images of a lock.
func planSet(ctx context.Context, c *connection, source string) (mirror.Planned, error) {
	lock, err := mirror.ReadLock(os.DirFS(source))
	if err != nil {
		return mirror.Planned{}, err
	}
	sources, err := mirror.Sources(lock)
	if err != nil {
		return mirror.Planned{}, err
	}
	return c.engine(sources...).PlanSet(ctx, lock)
}

// emit sends the outputs: those of one image, or those of the images of a lock. A destroy has none.
func emit(out *serve.Emitter, o mirror.Outputs, copies *mirror.Copies) error {
	if o == (mirror.Outputs{}) {
		return nil
	}
	if c := copies; c != nil {
		return errors.Join(out.Output("digest", c.Digest, false), out.Output("images", c.Images, false), out.Output("named", c.Named, false), out.Output("registry", c.Registry, false))
	}
	return errors.Join(out.Output("reference", o.Reference, false), out.Output("digest", o.Digest, false))
}

func emitChanges(out *serve.Emitter, p mirror.Planned) error {
	if p.Outputs == p.Before {
		return nil
	}
	if c := p.Copies; c != nil {
		images, named := changeset.Change{Address: "images", Action: changeset.Create, After: c.Images}, changeset.Change{Address: "named", Action: changeset.Create, After: c.Named}
		if p.Before != (mirror.Outputs{}) { // only the digest of the earlier lock is known
			images, named = changeset.Change{Address: "images", Action: changeset.Update, Omitted: true}, changeset.Change{Address: "named", Action: changeset.Update, Omitted: true}
			return errors.Join(outputChange(out, "digest", p.Before.Digest, p.Outputs.Digest), out.OutputChange(images), out.OutputChange(named))
		}
		return errors.Join(outputChange(out, "digest", "", c.Digest), out.OutputChange(images), out.OutputChange(named), outputChange(out, "registry", "", c.Registry))
	}
	for _, o := range []struct{ name, before, after string }{{"reference", p.Before.Reference, p.Outputs.Reference}, {"digest", p.Before.Digest, p.Outputs.Digest}} {
		if err := outputChange(out, o.name, o.before, o.after); err != nil {
			return err
		}
	}
	return nil
}

// outputChange sends the change of an output that is a text; "": it does not exist.
func outputChange(out *serve.Emitter, name, before, after string) error {
	ch := changeset.Change{Address: name, Action: changeset.Update, Before: before, After: after}
	switch "" {
	case before:
		ch.Action, ch.Before = changeset.Create, nil
	case after:
		ch.Action, ch.After = changeset.Delete, nil
	}
	return out.OutputChange(ch)
}

func apply(ctx context.Context, req pluginprotocol.Request, out *serve.Emitter) error {
	text, err := os.ReadFile(req.Plan)
	if err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	c, err := connect(ctx, req)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	begun := false
	begin := func() error {
		if begun {
			return nil
		}
		begun = true
		if err := out.Mutating(); err != nil { // the step does not learn of the change, so it must not begin
			stop(err)
			return err
		}
		if c.ecr != nil && req.Operation == pluginprotocol.Apply {
			return c.ecr.Make(ctx, c.target.Repository, req.Install)
		}
		return nil
	}
	done, err := c.engine(mirror.SourcesOf(text)...).Apply(ctx, text, begin)
	if err != nil {
		return err
	}
	return emit(out, done, mirror.CopiesOf(text))
}
