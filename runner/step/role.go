package step

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/redact"
	"github.com/fairlead/fairlead/runner/plugin"
)

// roleTimeout bounds assuming a role. STS answers within milliseconds, and the SDK retries a few times.
const roleTimeout = 30 * time.Second

// takeRole assumes the AWS role of the job's operation. If the operation has no role, it returns nil. After takeRole has
// returned, the log masks the role's secrets.
func (a *execution) takeRole(ctx context.Context, spec events.JobSpec, g *guard, secrets *redact.Set) (*Role, error) {
	r := a.in.Role
	if r == nil {
		return nil, nil
	}
	if a.TakeRole == nil {
		return nil, plugin.Errorf(fairlead.ReasonInternal, "this runner cannot assume the role %s", r.ARN)
	}
	bounded, cancel := context.WithTimeout(ctx, roleTimeout)
	defer cancel()
	taken, err := a.TakeRole(bounded, RoleWanted{Role: r.ARN, ExternalID: r.ExternalID, Region: r.Region, Install: r.Install, Job: string(a.in.Job), Policy: a.firstPolicy(spec, g)}, a.workspace.Path, secrets.Add)
	if err == nil {
		return taken, nil
	}
	return nil, a.roleRefused(ctx, err)
}

func environOf(t *Role) map[string]string {
	if t == nil {
		return nil
	}
	return t.Environ
}
