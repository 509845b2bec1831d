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

// completion offers names that only the control plane knows. If it cannot get the names, it
// offers no names, because a completion cannot show an error.
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

// offerOf completes with at most one page of names. Each name has a description with further
// facts.
func offerOf[T any](list func(*client.Client, context.Context, client.ListOptions) (wire.Page[T], error), describe func(T) (name, about string)) completion {
	return func(ctx context.Context, cl *client.Client) ([]string, error) {
		page, err := list(cl, ctx, client.ListOptions{Limit: pageSize})
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

// The completions of names. They are constant.
var (
	appNames      = offerOf((*client.Client).ListApps, func(a wire.App) (string, string) { return a.Name, a.Description })
	channelNames  = offerOf((*client.Client).ListRunnerChannels, func(r wire.RunnerChannel) (string, string) { return r.Name, r.Version })
	groupPaths    = offerOf((*client.Client).ListGroups, func(g wire.Group) (string, string) { return g.Path, g.Description })
	installNames  = offerOf((*client.Client).ListInstalls, func(i wire.Install) (string, string) { return i.Name, i.App + ", " + i.State })
	ruleIDs       = offerOf((*client.Client).ListRunnerRules, func(r wire.RunnerRule) (string, string) { return r.ID, r.Match + " -> " + r.Runner })
	runnerNames   = offerOf((*client.Client).ListRunners, func(r wire.Runner) (string, string) { return r.Name, r.State })
	userEmails    = offerOf((*client.Client).ListUsers, func(u wire.User) (string, string) { return u.Email, u.Name })
	tokenNames    = offerOf((*client.Client).ListTokens, func(t wire.Token) (string, string) { return t.Name, "made " + view.Time(t.CreatedAt) })
	accountNames  = offerOf((*client.Client).ListServiceAccounts, func(a wire.ServiceAccount) (string, string) { return a.Name, a.Issuer })
	webhookNames  = offerOf((*client.Client).ListWebhooks, func(w wire.Webhook) (string, string) { return w.Name, w.URL })
	deploymentIDs = offerOf(allDeployments, func(d wire.Deployment) (string, string) { return d.ID, d.Kind + " of " + d.Install + ", " + d.State })
	jobIDs        = offerOf(allJobs, func(j wire.Job) (string, string) {
		return j.ID, j.Operation + " " + j.Component + " of " + j.Install + ", " + j.State
	})
)

func allDeployments(cl *client.Client, ctx context.Context, o client.ListOptions) (wire.Page[wire.Deployment], error) {
	return cl.ListDeployments(ctx, client.DeploymentFilter{}, o)
}

func allJobs(cl *client.Client, ctx context.Context, o client.ListOptions) (wire.Page[wire.Job], error) {
	return cl.ListJobs(ctx, client.JobFilter{}, o)
}
