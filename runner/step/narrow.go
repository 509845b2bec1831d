package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/pkg/sessionpolicy"
	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/plugin"
)

// narrows reports whether the job applies a saved plan whose changes name the services of AWS that they use. A script, a chart and a
// plugin of the vendor name none.
func narrows(spec events.JobSpec) bool {
	t, _ := component.Of(spec.Plugin)
	return t.Module && (job.Operation(spec.Operation) == job.OpApply || job.Operation(spec.Operation) == job.OpDestroy)
}

// firstPolicy returns the session policy for what runs before the changes are known: `init`, and the providers that describe the plan.
// "": the role stays whole.
func (a *execution) firstPolicy(spec events.JobSpec, g *guard) string {
	if !narrows(spec) || a.keepsRoles(g) {
		return ""
	}
	return sessionpolicy.Before(a.needs(spec))
}

// keepsRoles reports whether the runner's configuration switches session policies off. The customer's policy overrides it: otherwise
// code of a provider, which no change shows, would have the whole role. g may be nil.
func (a *execution) keepsRoles(g *guard) bool {
	return a.in.WholeRoles && (g == nil || !g.policy.Narrows())
}

// needs returns what each apply of the spec uses.
func (a *execution) needs(spec events.JobSpec) sessionpolicy.Needs {
	n := sessionpolicy.Needs{Images: spec.Registry != nil}
	if s := spec.State; s != nil && s.In != nil && s.In.Bucket != "" && s.Storage == "s3" {
		n.Buckets = append(n.Buckets, s.In.Bucket)
	}
	if at, err := providers.ParseMirror(a.in.Mirror); err == nil && at.Bucket != "" {
		n.Buckets = append(n.Buckets, at.Bucket)
	}
	return n
}

// narrower returns the function with which a plugin narrows the credentials of the role; nil: it has nothing to narrow, and no
// policy demands it. log gets one line.
func (a *execution) narrower(spec events.JobSpec, role *Role, g *guard, log io.Writer) func(context.Context, plugin.Use) error {
	if !narrows(spec) || role == nil && (g == nil || !g.policy.Narrows()) {
		return nil
	}
	return func(ctx context.Context, u plugin.Use) error {
		if a.keepsRoles(g) {
			fmt.Fprintf(log, "[fairlead: the role of this job stays whole, because the runner's configuration has whole_roles]\n")
			return nil
		}
		n := sessionpolicy.For(u.Kinds, a.needs(spec))
		whole := slices.Clone(n.Unmapped)
		if role == nil { // what the machine has stays as it is for each type
			whole = slices.Clone(u.Kinds)
		}
		if len(u.Programs) > 0 {
			whole = append(whole, policy.LocalExec)
		}
		if err := g.keepsWhole(whole); err != nil {
			return err
		}
		switch {
		case role == nil:
			return nil
		case len(n.Unmapped) > 0:
			return a.widen(ctx, role, log, "this runner does not know the services of "+strings.Join(n.Unmapped, ", "))
		case len(u.Programs) > 0:
			return a.widen(ctx, role, log, strings.Join(u.Programs, ", ")+" runs a program, which could use any service")
		}
		for _, p := range n.Policies {
			bounded, cancel := context.WithTimeout(ctx, roleTimeout)
			err := role.SetPolicy(bounded, p.Document)
			cancel()
			if err == nil {
				fmt.Fprintf(log, "[fairlead: the credentials of this %s are for %s]\n", spec.Operation, described(p.Services))
				return nil
			}
			if !errors.Is(err, ErrPolicySize) { // else the next one is shorter
				return a.roleRefused(ctx, err)
			}
		}
		if err := g.keepsWhole([]string{policy.TooManyServices}); err != nil {
			return err
		}
		return a.widen(ctx, role, log, "the changes use too many services for a session policy")
	}
}

func described(services []string) string {
	if len(services) == 0 {
		return "the state only, because the changes use no service of AWS"
	}
	return strings.Join(services, ", ")
}

// widen gives the tool the whole role.
func (a *execution) widen(ctx context.Context, role *Role, log io.Writer, why string) error {
	bounded, cancel := context.WithTimeout(ctx, roleTimeout)
	defer cancel()
	if err := role.SetPolicy(bounded, ""); err != nil {
		return a.roleRefused(ctx, err)
	}
	fmt.Fprintf(log, "[fairlead: the role of this job stays whole: %s]\n", why)
	return nil
}

// keepsWhole judges that an apply gets the whole role because of what causes names. g may be nil.
func (g *guard) keepsWhole(causes []string) error {
	if g == nil {
		return nil
	}
	if d := g.policy.WholeRole(causes); d.Effect == policy.Deny {
		return denied(d)
	}
	return nil
}

// roleRefused is the error of a role that cannot be assumed.
func (a *execution) roleRefused(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("assume role: %w", ctx.Err())
	}
	return &plugin.Error{Reason: fairlead.ReasonRoleRefused, Err: err,
		Message: fmt.Sprintf("the role of the operation %s cannot be assumed, so nothing was changed: %v. Check that the customer's stack exists and that the runner is enabled in it", a.in.Operation, err)}
}
