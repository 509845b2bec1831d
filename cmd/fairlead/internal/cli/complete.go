package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/profile"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// completionWait is how long a person who pressed TAB waits for names.
const completionWait = 2 * time.Second

// completion offers names that only the control plane knows. Failing to get
// them offers none: a completion has nowhere to complain.
type completion func(ctx context.Context, cl *client.Client) ([]string, error)

// names completes the first argument.
func (c *cli) names(list completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.offer(cmd, list)
	}
}

// flagNames completes the value of a flag.
func (c *cli) flagNames(cmd *cobra.Command, flag string, list completion) {
	c.must(cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return c.offer(cmd, list)
	}))
}

func (c *cli) offer(cmd *cobra.Command, list completion) ([]string, cobra.ShellCompDirective) {
	const nothing = cobra.ShellCompDirectiveNoFileComp
	target, err := profile.Resolve(c.flags, c.env.Getenv)
	if err != nil {
		return nil, nothing
	}
	cl, err := c.clientOf(target, client.Options{Retries: -1})
	if err != nil {
		return nil, nothing
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completionWait)
	defer cancel()
	offered, err := list(ctx, cl)
	if err != nil {
		return nil, nothing
	}
	return offered, nothing | cobra.ShellCompDirectiveKeepOrder
}

// offerOf lists up to a page of names, each with what a person would not know
// by the name alone.
func offerOf[T any](list func(context.Context, client.ListOptions) (wire.Page[T], error), describe func(T) (name, about string)) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		page, err := list(ctx, client.ListOptions{Limit: pageSize})
		if err != nil {
			return nil, err
		}
		out := make([]string, len(page.Items))
		for i, item := range page.Items {
			name, about := describe(item)
			out[i] = cobra.CompletionWithDesc(name, about)
		}
		return out, nil
	}
}

func appNames(ctx context.Context, cl *client.Client) ([]string, error) {
	return offerOf(cl.ListApps, func(a wire.App) (string, string) { return a.Name, a.Description })(ctx)
}

func installNames(ctx context.Context, cl *client.Client) ([]string, error) {
	return offerOf(cl.ListInstalls, func(i wire.Install) (string, string) { return i.Name, i.App + ", " + i.State })(ctx)
}

func runnerNames(ctx context.Context, cl *client.Client) ([]string, error) {
	return offerOf(cl.ListRunners, func(r wire.Runner) (string, string) { return r.Name, r.State })(ctx)
}

func webhookNames(ctx context.Context, cl *client.Client) ([]string, error) {
	return offerOf(cl.ListWebhooks, func(w wire.Webhook) (string, string) { return w.Name, w.URL })(ctx)
}

func tokenNames(ctx context.Context, cl *client.Client) ([]string, error) {
	return offerOf(cl.ListTokens, func(t wire.Token) (string, string) { return t.Name, "made " + view.Time(t.CreatedAt) })(ctx)
}

func deploymentIDs(ctx context.Context, cl *client.Client) ([]string, error) {
	list := func(ctx context.Context, o client.ListOptions) (wire.Page[wire.Deployment], error) {
		return cl.ListDeployments(ctx, client.DeploymentFilter{}, o)
	}
	return offerOf(list, func(d wire.Deployment) (string, string) { return d.ID, d.Kind + " of " + d.Install + ", " + d.State })(ctx)
}

func jobIDs(ctx context.Context, cl *client.Client) ([]string, error) {
	list := func(ctx context.Context, o client.ListOptions) (wire.Page[wire.Job], error) {
		return cl.ListJobs(ctx, client.JobFilter{}, o)
	}
	return offerOf(list, func(j wire.Job) (string, string) {
		return j.ID, j.Operation + " " + j.Component + " of " + j.Install + ", " + j.State
	})(ctx)
}
