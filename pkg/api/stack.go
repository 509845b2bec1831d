package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/awsaction"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/stackversion"
)

// StackSource describes where customers install runners from. The zero value means
// that nothing is published yet.
type StackSource struct {
	URL         string // of the control plane, as the runners reach it
	TemplateURL string // of the published template; must be in S3, because the AWS console accepts no other host
	Image       string // of the runner, by digest
}

func (s *server) stackRoutes(c *control.Control) {
	type put struct {
		InstallPath
		Body wire.PutStackRequest
	}
	register(s, op{Route: wire.PutStack, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *put) ([]need, error) {
		return mayPrepareStack(ctx, r, in.InstallPath)
	}, access.ManageRunners), tag: "Stacks", summary: "Prepare an install for a runner stack in a customer's account",
		doc:      "Creates the install's external id, and lets the AWS role of the stack's runner open sessions. A repeated request starts the wait for that role again.",
		problems: codes{fairlead.CodeInstallNotFound, fairlead.CodeRunnerNotFound, fairlead.CodeAppNotFound, fairlead.CodeInvalidAccount, fairlead.CodeInvalidRegion, fairlead.CodeRunnerServesAnother, fairlead.CodeRunnerTrustsAnother, fairlead.CodeStackNotPublished}},
		func(ctx context.Context, in *put) (*body[wire.Stack], error) {
			if err := s.published(); err != nil {
				return nil, err
			}
			v, err := c.CreateStack(ctx, callerOf(ctx).org, in.Install, control.NewStack{Account: in.Body.Account, Region: in.Body.Region, Replace: in.Body.Replace})
			if err != nil {
				return nil, err
			}
			return s.showStack(ctx, c, v)
		})
	s.listStacks(c)
	type check struct{ Body wire.CheckStackRequest }
	register(s, op{Route: wire.CheckStack, auth: apiToken, may: eachCaller(), tag: "Stacks", summary: "Check whether a runner stack could be prepared in a customer's account", status: http.StatusNoContent,
		doc:      "Changes nothing. Ask before you create the runner and the install of the stack.",
		problems: codes{fairlead.CodeInvalidAccount, fairlead.CodeInvalidRegion, fairlead.CodeStackNotPublished}},
		func(_ context.Context, in *check) (*struct{}, error) {
			if err := c.CheckStack(control.NewStack{Account: in.Body.Account, Region: in.Body.Region}); err != nil {
				return nil, err
			}
			return nil, s.published()
		})
	register(s, op{Route: wire.GetStack, auth: apiToken, may: on(access.View), tag: "Stacks", summary: "Get the runner stack of an install",
		problems: codes{fairlead.CodeInstallNotFound, fairlead.CodeStackNotFound}},
		func(ctx context.Context, in *InstallPath) (*body[wire.Stack], error) {
			v, err := c.Stack(ctx, callerOf(ctx).org, in.Install)
			if err != nil {
				return nil, err
			}
			return s.showStack(ctx, c, v)
		})
}

// declared is what an install's app declares and the customer's stack gives.
type declared struct {
	actions awsaction.Grants // none: the template's default applies
	secrets []control.DeclaredSecret
	images  []control.DeclaredImage // of scripts
	keys    []string                // public keys that runners trust, in base64
}

// showStack answers with a stack, and with what the install's app declares.
func (s *server) showStack(ctx context.Context, c *control.Control, v control.Stack) (*body[wire.Stack], error) {
	actions, err := c.DeclaredActions(ctx, callerOf(ctx).org, v.InstallName)
	if err != nil {
		return nil, err
	}
	secrets, err := c.DeclaredSecrets(ctx, callerOf(ctx).org, v.InstallName)
	if err != nil {
		return nil, err
	}
	images, err := c.DeclaredImages(ctx, callerOf(ctx).org, v.InstallName)
	if err != nil {
		return nil, err
	}
	signing, err := c.Signing(ctx)
	if err != nil {
		return nil, err
	}
	return answer(s.renderStack(v, declared{actions: actions, secrets: secrets, images: images, keys: signing.TrustedKeys()}), nil)
}

type listStacksInput struct {
	ListInput
	Behind bool `query:"behind" doc:"Only stacks that have an older template or image than the current one"`
}

func (s *server) listStacks(c *control.Control) {
	register(s, op{Route: wire.ListStacks, auth: apiToken, may: eachCaller(), tag: "Stacks", summary: "List runner stacks by the names of their installs",
		doc:      "A page before the last one may have fewer items than the limit, even none.",
		problems: listing},
		func(ctx context.Context, in *listStacksInput) (*paged[wire.Stack], error) {
			signing, err := c.Signing(ctx)
			if err != nil {
				return nil, err
			}
			actions := map[fairlead.InstallID]awsaction.Grants{}
			render := func(v control.Stack) wire.Stack {
				return s.renderStack(v, declared{actions: actions[v.Install], keys: signing.TrustedKeys()})
			}
			return list(&in.ListInput, seen(ctx, s, stacksOf), render, func(q fairlead.PageQuery) ([]control.Stack, string, error) {
				all, next, err := c.Stacks(ctx, callerOf(ctx).org, q)
				for _, v := range all {
					declared, err := c.DeclaredActions(ctx, callerOf(ctx).org, v.InstallName)
					if err != nil && fairlead.KindOf(err) != fairlead.KindNotFound { // not found: the install was deleted meanwhile
						return nil, "", err
					}
					actions[v.Install] = declared
				}
				if in.Behind {
					all = slices.DeleteFunc(all, func(v control.Stack) bool { return s.update(v, actions[v.Install]) == nil })
				}
				return all, next, err
			})
		})
}

func (s *server) published() error {
	if s.Stack.TemplateURL != "" && s.Stack.Image != "" {
		return nil
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeStackNotPublished, Message: "this control plane knows no template and image that customers could install a runner from",
		Hint: "Publish both, and set FAIRLEAD_STACK_TEMPLATE_URL and FAIRLEAD_RUNNER_IMAGE."}
}

// renderStack renders a stack with what the install's app declares.
func (s *server) renderStack(v control.Stack, app declared) wire.Stack {
	actions := app.actions
	out := wire.Stack{Actors: renderActors(v.Actors), Install: v.InstallName, InstallID: string(v.Install), Runner: v.RunnerName, Account: v.Account, Region: v.Region,
		State: v.State, ExternalID: v.ExternalID, StackName: "fairlead-" + v.InstallName, TemplateURL: s.Stack.TemplateURL, CustomerSecrets: renderSecrets(app.secrets), ScriptImages: renderImages(app.images),
		Parameters: []wire.StackParameter{
			{Name: wire.StackControlPlaneURL, Value: s.Stack.URL}, {Name: wire.StackInstallID, Value: string(v.Install)},
			{Name: wire.StackRunnerID, Value: string(v.Runner)}, {Name: wire.StackExternalID, Value: v.ExternalID},
			{Name: wire.StackTrustedKeys, Value: strings.Join(app.keys, ",")}, {Name: wire.StackRunnerImage, Value: s.Stack.Image},
		}}
	if len(actions.All) > 0 {
		out.Parameters = append(out.Parameters, wire.StackParameter{Name: wire.StackAppActions, Value: strings.Join(actions.All, ",")})
		for _, operation := range awsaction.Operations() {
			if own, ok := actions.Of[operation]; ok {
				out.Parameters = append(out.Parameters, wire.StackParameter{Name: wire.StackOperationActions(operation), Value: strings.Join(own, ",")})
			}
		}
		out.AppUses = actions.Sentences()
		out.Parameters = append(out.Parameters, wire.StackParameter{Name: wire.StackAppUses, Value: usesForm(out.AppUses)})
	}
	if images := wire.DistinctImages(out.ScriptImages); len(images) > 0 && len(images) <= wire.MaxScriptImages {
		out.Parameters = append(out.Parameters, wire.StackParameter{Name: wire.StackScriptImages, Value: strings.Join(images, ",")})
	}
	out.QuickCreateURL, out.Update = quickCreate(out, v.Next), s.update(v, actions)
	out.Parameters = append(out.Parameters, statesParameters(v.States)...)
	for _, id := range v.Running {
		out.Running = append(out.Running, string(id))
	}
	for _, r := range v.Left {
		out.Left = append(out.Left, wire.StackResource(r))
	}
	if !v.Since.IsZero() {
		at := v.Since.UTC()
		out.Since = &at
	}
	if !v.WaitUntil.IsZero() {
		at := v.WaitUntil.UTC()
		out.WaitsUntil = &at
	}
	if r := v.Report; r != nil {
		at := v.Reported.UTC()
		out.ReportedAt = &at
		out.Report = &wire.StackReport{StackID: r.ID, Version: r.Version, Region: r.Region, Image: r.Image, StateBucket: r.StateBucket, StateKey: r.StateKey, Made: r.Made,
			Images: r.Images, Artifacts: r.Artifacts, Boundary: r.Boundary, AppActions: r.AppActions, OperationActions: r.OperationActions, Roles: r.Roles}
	}
	for _, c := range v.Changes {
		out.Changes = append(out.Changes, wire.StackChange{At: c.At.UTC(), What: c.What})
	}
	return out
}

// usesForm returns the value of AppUses: the sentences that fit into a parameter.
func usesForm(sentences []string) string {
	const more = " There is more: see AppActions."
	text := strings.Join(sentences, " ")
	for n := len(sentences); len(text) > wire.MaxStackParameter; {
		n--
		text = strings.TrimSpace(strings.Join(sentences[:n], " ") + more)
	}
	return text
}

// statesParameters returns the parameters with which a stack takes over states.
func statesParameters(states control.StackStates) []wire.StackParameter {
	if states.Bucket == "" {
		return nil
	}
	return []wire.StackParameter{{Name: wire.StackExistingBucket, Value: states.Bucket}, {Name: wire.StackExistingKey, Value: states.Key}}
}

// quickCreate returns the link that opens the AWS console's form with all parameters
// filled in (AWS CloudFormation User Guide, quick-create links). The parameters are
// after the "#" of the link, and a browser does not send that part. The new stack takes
// over the states, in their region.
func quickCreate(s wire.Stack, states control.StackStates) string {
	var b strings.Builder
	b.WriteString(console(cmp.Or(states.Region, s.Region)) + "#/stacks/create/review?templateURL=" + url.QueryEscape(s.TemplateURL) + "&stackName=" + url.QueryEscape(s.StackName))
	for _, p := range slices.Concat(s.Parameters, statesParameters(states)) {
		b.WriteString("&param_" + p.Name + "=" + url.QueryEscape(p.Value))
	}
	// The jobs of a component in the sandbox run in a cluster, and do not get the secrets of the stack.
	ofStack := slices.DeleteFunc(slices.Clone(s.CustomerSecrets), func(c wire.CustomerSecret) bool {
		return runnerspec.Kind(c.RunnerKind).Executor() == runnerspec.ExecutorKubernetes
	})
	if n := len(ofStack); n > 0 && n <= wire.MaxStackSecrets {
		b.WriteString("&param_" + wire.StackJobSecrets + "=" + url.QueryEscape(secretsForm(ofStack)))
	}
	return b.String()
}

// secretsForm returns the value of JobSecrets with an empty place for each ARN. The template
// refuses it, so the customer cannot create the stack without a decision about each secret.
func secretsForm(all []wire.CustomerSecret) string {
	entries := make([]string, len(all))
	for i, s := range all {
		entries[i] = s.Entry + "=ARN"
	}
	return strings.Join(entries, ",")
}

// console returns the URL of CloudFormation in the AWS console of a region; "": the
// region that the customer selected last.
func console(region string) string {
	host, query := "console.aws.amazon.com", ""
	switch {
	case strings.HasPrefix(region, "cn-"):
		host = "console.amazonaws.cn"
	case strings.HasPrefix(region, "us-gov-"):
		host = "console.amazonaws-us-gov.com"
	}
	if region != "" {
		query = "?region=" + region
		if host == "console.aws.amazon.com" {
			host = region + "." + host
		}
	}
	return "https://" + host + "/cloudformation/home" + query
}

// update returns how a stack gets the current template and image, what the app declares, and
// the states of the install; nil if it has them, or has not reported yet. AWS documents the console's link for a new stack, but not the one
// for an update, which the console itself uses.
//
// The parameter actions is as in renderStack. A stack that does not report what it grants
// lacks nothing: its template is older.
func (s *server) update(v control.Stack, actions awsaction.Grants) *wire.StackUpdate {
	if v.Report == nil || s.published() != nil {
		return nil
	}
	newer := stackversion.After(v.Report.Version)
	var missing []string
	if len(v.Report.AppActions) > 0 {
		missing = actions.Missing(awsaction.Grants{All: v.Report.AppActions, Of: v.Report.OperationActions})
	}
	if len(newer) == 0 && len(missing) == 0 && v.Report.Image == s.Stack.Image && v.Elsewhere == nil {
		return nil
	}
	out := &wire.StackUpdate{Version: stackversion.Current(), Image: s.Stack.Image, Versions: []wire.StackVersion{}, Missing: missing,
		URL: console(v.Report.Region) + "#/stacks/update/template?stackId=" + url.QueryEscape(v.Report.ID) + "&templateURL=" + url.QueryEscape(s.Stack.TemplateURL)}
	if v.Elsewhere != nil {
		out.StateBucket = v.Elsewhere.In
	}
	for _, n := range newer {
		out.Versions = append(out.Versions, wire.StackVersion{Version: n.Number, Changes: n.Changes})
	}
	return out
}

func readStack(in *wire.SessionStack) *control.SessionStack {
	if in == nil {
		return nil
	}
	return &control.SessionStack{Install: fairlead.InstallID(in.InstallID), ExternalID: in.ExternalID,
		Report: control.StackReport{ID: in.StackID, Version: in.Version, Region: in.Region, Image: in.Image, StateBucket: in.StateBucket, StateKey: in.StateKey, Made: in.Made,
			Images: in.Images, Artifacts: in.Artifacts, Boundary: in.Boundary, AppActions: in.AppActions, OperationActions: in.OperationActions, Roles: in.Roles}}
}
