package api

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// configures holds the problems of requests that set a runner's configuration.
var configures = codes{fairlead.CodeInvalidName, fairlead.CodeInvalidRunner, fairlead.CodeInvalidGroup, fairlead.CodeGroupNotFound, fairlead.CodeGroupNotEmpty, fairlead.CodeInstallNotFound, fairlead.CodeChannelNotFound, fairlead.CodeOperatorOnly}

// configuration reads the configuration in a request.
func configuration(in wire.RunnerConfigurationInput) (control.RunnerFile, error) {
	f := control.RunnerFile{Name: in.File, Text: in.Text, Set: in.Set}
	object := bytes.TrimSpace(in.Config)
	if len(object) == 0 || string(object) == "null" {
		if f.Name != "" && strings.TrimSpace(f.Text) == "" {
			return f, fairlead.Invalid(fairlead.CodeInvalidRunner, "the configuration file %s is empty", strconv.Quote(f.Name))
		}
		return f, nil
	}
	if in.Text != "" {
		return f, fairlead.Invalid(fairlead.CodeInvalidRunner, "config and text are both given")
	}
	if object[0] != '{' {
		return f, fairlead.Invalid(fairlead.CodeInvalidRunner, "config is not a JSON object")
	}
	f.Text = string(object)
	return f, nil
}

// newRunner reads the request for a runner.
func newRunner(in wire.CreateRunnerRequest) (control.NewRunner, error) {
	file, err := configuration(in.RunnerConfigurationInput)
	return control.NewRunner{Name: in.Name, Description: in.Description, Storage: in.Storage, File: file, AWSRole: in.AWSRole, AWSRoleID: in.AWSRoleID}, err
}

func (s *server) runnerConfigRoutes(c *control.Control) {
	type create struct {
		OnceInput
		Body wire.CreateRunnerRequest
	}
	register(s, op{Route: wire.CreateRunner, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *create) ([]need, error) {
		return mayCreateRunner(ctx, r, in.Body)
	}, access.ManageRunners), tag: "Runners", summary: "Create a runner", status: http.StatusCreated,
		doc:      "Without a configuration, the runner is of kind local.",
		problems: slices.Concat(creator, counted, configures, storesMuch, codes{fairlead.CodeRunnerExists, fairlead.CodeInvalidStorage, fairlead.CodeInvalidTrust})},
		func(ctx context.Context, in *create) (*body[wire.Runner], error) {
			made, err := newRunner(in.Body)
			if err != nil {
				return nil, err
			}
			by := callerOf(ctx).user
			if in.Body.Shared {
				return s.oneRunner(ctx)(c.CreateSharedRunner(ctx, by, made, in.IdempotencyKey))
			}
			return s.oneRunner(ctx)(c.CreateRunner(ctx, by.Org, made, in.IdempotencyKey))
		})
	register(s, op{Route: wire.ListRunners, auth: apiToken, may: eachCaller(), tag: "Runners", summary: "List runners by name, those of the org first, then the shared ones",
		problems: listing},
		func(ctx context.Context, in *ListInput) (*paged[wire.Runner], error) {
			by := callerOf(ctx).user
			return list(in, seen(ctx, s, runnersOf), func(r control.Runner) wire.Runner { return renderRunner(r, by) }, func(q fairlead.PageQuery) ([]control.Runner, string, error) {
				return c.Runners(ctx, by.Org, q)
			})
		})
	register(s, op{Route: wire.GetRunner, auth: apiToken, may: on(access.View), tag: "Runners", summary: "Get a runner with its configuration and its sessions",
		problems: codes{fairlead.CodeRunnerNotFound}},
		func(ctx context.Context, in *RunnerPath) (*body[wire.Runner], error) {
			return s.oneRunner(ctx)(c.Runner(ctx, callerOf(ctx).org, in.Runner))
		})
	type update struct {
		RunnerPath
		Body wire.UpdateRunnerRequest
	}
	register(s, op{Route: wire.UpdateRunner, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *update) ([]need, error) {
		return mayUpdateRunner(ctx, r, callerOf(ctx).user, in.RunnerPath, in.Body)
	}, access.ManageRunners), tag: "Runners", summary: "Change a part of a runner's configuration",
		doc:      "Maps are merged at every depth; lists and scalars are replaced. null removes a field. A secret with the value (masked) is not changed. The type cannot be changed.",
		problems: slices.Concat(configures, storesMuch, codes{fairlead.CodeRunnerNotFound, fairlead.CodeRunnerInUse})},
		func(ctx context.Context, in *update) (*body[wire.Runner], error) {
			file, err := configuration(in.Body.RunnerConfigurationInput)
			if err != nil {
				return nil, err
			}
			return s.oneRunner(ctx)(c.UpdateRunner(ctx, callerOf(ctx).user, in.Runner, file))
		})
	register(s, op{Route: wire.DeleteRunner, auth: apiToken, may: on(access.ManageRunners), tag: "Runners", summary: "Delete a runner that nothing uses", status: http.StatusNoContent,
		problems: codes{fairlead.CodeRunnerNotFound, fairlead.CodeRunnerInUse, fairlead.CodeOperatorOnly}},
		func(ctx context.Context, in *RunnerPath) (*struct{}, error) {
			return nil, c.DeleteRunner(ctx, callerOf(ctx).user, in.Runner)
		})
	s.channelRoutes(c)
	type mode struct {
		RunnerPath
		Body wire.RunnerMode
	}
	register(s, op{Route: wire.SetRunnerMode, auth: apiToken, may: on(access.ManageRunners), tag: "Runners", summary: "Set the mode of a runner",
		doc: "This is the mode that the vendor sets. A runner that is paused, draining or disabled starts no jobs, finishes its running jobs, and its queued jobs stay queued. " +
			"Rules still choose a paused runner for installs, but not a draining or disabled one. The customer can also pause the agents where they run.",
		problems: codes{fairlead.CodeRunnerNotFound, fairlead.CodeInvalidMode, fairlead.CodeOperatorOnly}},
		func(ctx context.Context, in *mode) (*body[wire.Runner], error) {
			return s.oneRunner(ctx)(c.SetRunnerMode(ctx, callerOf(ctx).user, in.Runner, fairlead.RunnerMode(in.Body.Mode)))
		})
}

// oneRunner returns a function that renders a runner with its configuration and its
// situations.
func (s *server) oneRunner(ctx context.Context) func(control.Runner, error) (*body[wire.Runner], error) {
	return func(r control.Runner, err error) (*body[wire.Runner], error) {
		if err != nil {
			return nil, err
		}
		by := callerOf(ctx).user
		out := renderRunner(r, by)
		if foreign(r, by) {
			return answer(out, nil)
		}
		out.Config = r.Config
		situations, err := s.Control.RunnerSituations(ctx, r)
		out.Situations = renderSituations(situations)
		return answer(out, err)
	}
}
