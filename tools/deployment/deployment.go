// Package deployment deploys the stack of the vendor's control plane to an AWS account.
// It publishes the runner's image in the stack's registry, and the template that
// customers install in the stack's bucket. It also logs the CLI in.
//
// Each published file is named by its digest. The digest is known before the file is
// published, so one deployment of the stack sets all names. A second run completes an
// interrupted run.
package deployment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/mail"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
)

// CDK is the npm package of the CDK's CLI. Its version must be able to read the output
// of the pinned CDK library.
const CDK = "aws-cdk@2.1148.1"

// toolkit is the stack that "cdk bootstrap" creates.
const toolkit = "CDKToolkit"

// Options are the options of a deployment.
type Options struct {
	Stage     string   // part of the name of every stack and resource
	Account   string   // the only account to deploy to; "": the account of the credentials
	Operator  string   // name of the token with which the CLI logs in
	Version   string   // version of the release, which the control plane and its runners report
	Customers []string // accounts that may read the image and the template from now on; AnyAccount: all
	Without   []string // accounts that may no longer read the image and the template
	DryRun    bool     // print the steps and do nothing
	Yes       bool     // the CDK does not ask before it adds permissions
	// BuildRunner is the name of a runner of the vendor that runs beside the control
	// plane. "" keeps the current build runner, if any. NoBuildRunner removes it.
	BuildRunner string
	// AlarmEmail is the mail address that gets alarms. "" keeps the current address, if
	// any. NoAlarmEmail removes it.
	AlarmEmail string
	// Budget is the amount in whole US dollars that the account may cost a month before an
	// alarm. "" keeps the current amount, if any. NoBudget removes the alarm.
	Budget string
	// SignsWith is the key that signs job specs: First, Spare, or the ARN of a key in KMS that the operator rotated to. "" keeps the
	// current key.
	SignsWith string
	// DirectLaunch is On to run the service of direct launch, and Off to remove it. "" keeps
	// it as it is.
	DirectLaunch string
	// NoShell does not publish the runner's image with a shell and git beside the one without. No customer's stack
	// uses it until its parameter names it.
	NoShell bool
	// AllAtOnce gives all invocations to the new functions at once, without a canary: for a fix while the alarm of
	// the API is on, with which CodeDeploy starts no release. Table and SignsWith imply it if they change the stack.
	AllAtOnce bool
	// IgnorePolicies deploys although IAM's simulation finds forbidden actions.
	IgnorePolicies bool
	// Table is a restored table that the functions serve instead of the stack's own, after
	// `fairlead ops restore` has prepared it. "" keeps the current table. OwnTable is the
	// stack's own.
	Table string
	// SpareRegion is the Region that gets copies of what the control plane needs after the loss of its own.
	// "" keeps the current copies, if any. NoSpareRegion ends them.
	SpareRegion string
}

// AnyAccount is the customer that stands for every AWS account. infra/control has the
// same value.
const AnyAccount = "any"

// NoBuildRunner is the value of Options.BuildRunner that removes the build runner.
const NoBuildRunner = "none"

// Values of Options.DirectLaunch.
const (
	On  = "on"
	Off = "off"
)

// OwnTable is the value of Options.Table that selects the stack's own table.
const OwnTable = "none"

// NoAlarmEmail is the value of Options.AlarmEmail that removes the mail address.
const NoAlarmEmail = "none"

// NoBudget is the value of Options.Budget that removes the alarm for what the account costs.
const NoBudget = "none"

// Deployment deploys the control plane. Use it from one goroutine.
type Deployment struct {
	Options
	Config aws.Config        // must have region and credentials
	Root   string            // root folder of the source; the builds go below it
	Run    Run               // runs programs
	Remote http.RoundTripper // transport to the registry; nil: http.DefaultTransport
	Out    io.Writer         // progress messages for the operator
}

// Run runs a program and returns its standard output. An interactive program gets the
// terminal instead; Run then returns no output.
type Run func(ctx context.Context, c Command) ([]byte, error)

// Command is a program with its arguments.
type Command struct {
	Args        []string
	Folder      string   // working directory
	Env         []string // in addition to the environment of this process
	Stdin       string
	Interactive bool
}

var (
	accountPattern = regexp.MustCompile(`^[0-9]{12}$`)
	keyPattern     = regexp.MustCompile(`^arn:aws(-[a-z]+)*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$`)
	budgetPattern  = regexp.MustCompile(`^[1-9][0-9]{0,7}$`)
	versionPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)
	stagePattern   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,15}$`)
)

func (o Options) check() error {
	if !stagePattern.MatchString(o.Stage) {
		return fmt.Errorf("stage %q: use up to 16 lower-case letters, digits and hyphens, beginning with a letter", o.Stage)
	}
	if strings.HasSuffix(o.Stage, spareSuffix) {
		return fmt.Errorf("stage %q: a name that ends with %s is that of another stage's spare stack; use another name", o.Stage, spareSuffix)
	}
	for _, a := range slices.Concat(o.Customers, o.Without) {
		if a != AnyAccount && !accountPattern.MatchString(a) {
			return fmt.Errorf("customer %q is not an AWS account: use its twelve digits, or %q for every account", a, AnyAccount)
		}
	}
	if !slices.Contains([]string{"", On, Off}, o.DirectLaunch) {
		return fmt.Errorf("direct launch %q: use on or off", o.DirectLaunch)
	}
	if !slices.Contains([]string{"", firstKey, "Spare"}, o.SignsWith) && !keyPattern.MatchString(o.SignsWith) {
		return fmt.Errorf("the key %q is not a signing key of the stack: use First, Spare, or the ARN of a key in KMS", o.SignsWith)
	}
	if o.AlarmEmail != "" && o.AlarmEmail != NoAlarmEmail {
		if a, err := mail.ParseAddress(o.AlarmEmail); err != nil || a.Address != o.AlarmEmail {
			return fmt.Errorf("alarm email %q is not a mail address, such as ops@example.com", o.AlarmEmail)
		}
	}
	if !versionPattern.MatchString(o.Version) {
		return fmt.Errorf("version %q: use up to 64 letters, digits, dots, hyphens, underscores and plus signs, beginning with a letter or a digit", o.Version)
	}
	if o.Budget != "" && o.Budget != NoBudget && !budgetPattern.MatchString(o.Budget) {
		return fmt.Errorf("monthly budget %q is not an amount in whole US dollars, such as 500", o.Budget)
	}
	return nil
}

func (d *Deployment) stack() string { return "fairlead-" + d.Stage }

// state is the current state of the account, and what the deployment shall set.
type state struct {
	account, caller string
	prepared        bool              // "cdk bootstrap" has prepared the account
	status          types.StackStatus // of the stack; "": the stack does not exist
	outputs         map[string]string // of the stack
	parameters      map[string]string // of the stack: the values that CloudFormation keeps
	concurrency     int32             // executions of Lambda functions that the account may have at once
	reserves        bool              // wanted: functions have reserved concurrency
	readers         []string          // wanted: accounts that may read the image and the template
	builder         string            // wanted: identifier of the build runner; "": none
	direct          bool              // wanted: the service of direct launch
	alarms          string            // wanted: mail address that gets alarms; "": none
	budget          string            // wanted: US dollars a month above which there is an alarm; "": no limit
	spare           spare
	keys            string // wanted: ids of the replicas that the stack uses; "": keys of its own
	table           string // wanted: restored table with its stream, as the parameter RestoredTable; "": the stack's own
	signs           string // wanted: key that signs job specs, as SignsWith of Options
	switches        bool   // wanted: other functions get all invocations at once
}

// signed returns the key that signs job specs now, as SignsWith of Options.
func (s state) signed() string {
	return cmp.Or(set(s.parameters["LaterSigningKey"]), s.parameters["SignsWith"], firstKey)
}

// created reports whether a stack was created completely, now or earlier. Later updates
// may have failed.
func created(s types.StackStatus) bool {
	switch s {
	case "", types.StackStatusReviewInProgress, types.StackStatusCreateInProgress, types.StackStatusCreateFailed,
		types.StackStatusRollbackInProgress, types.StackStatusRollbackComplete, types.StackStatusRollbackFailed:
		return false
	}
	return true
}

// rolledBack reports whether the creation of a stack failed. Such a stack never served
// a request and can only be deleted.
func rolledBack(s types.StackStatus) bool {
	return s == types.StackStatusRollbackComplete || s == types.StackStatusRollbackFailed
}

// Do deploys the control plane and prints its steps. It does not change what is already
// up to date, so repeating it is harmless. After an error, call it again.
func (d *Deployment) Do(ctx context.Context) error {
	if err := d.check(); err != nil {
		return err
	}
	if err := d.checkSpare(); err != nil {
		return err
	}
	s, err := d.inspect(ctx)
	if err != nil {
		return err
	}
	if open := d.undecided(s); len(open) > 0 && !d.DryRun {
		return open[0]
	}
	d.announce(s)
	before := set(s.parameters["AlarmEmail"])
	if before == s.alarms {
		d.checkSubscription(ctx, s.outputs["AlarmTopic"], s.alarms)
	}
	if err := d.checkPolicies(ctx, s.caller, Needs(), optional); err != nil {
		return err
	}
	if d.wantsSpare() {
		if err := d.in(d.SpareRegion).checkPolicies(ctx, s.caller, SpareNeeds(), nil); err != nil {
			return err
		}
		if err := d.checkBackups(ctx, s.caller); err != nil {
			return err
		}
	}
	if d.DryRun {
		return nil
	}
	if err := d.deploy(ctx, &s); err != nil {
		return fmt.Errorf("%w\nNo cleanup is needed: run the command again, and it continues from here", err)
	}
	if before != s.alarms {
		d.checkSubscription(ctx, s.outputs["AlarmTopic"], s.alarms)
	}
	d.say("\nThe control plane is deployed. Next:\n  fairlead app apply examples/shop")
	if len(s.readers) == 0 {
		d.say("No customer may read the image and the template yet. Set CUSTOMERS= to their accounts and deploy again.")
	}
	return nil
}

func (d *Deployment) deploy(ctx context.Context, s *state) error {
	images, err := d.build(ctx, *s)
	if err != nil {
		return err
	}
	if err := d.apply(ctx, s, images); err != nil {
		return err
	}
	s.prepared = true
	if !created(s.status) {
		// The first deployment creates the tables without deletion protection, because a
		// failed creation must be able to remove them. If this run is interrupted here, the
		// next run finds a created stack and protects the tables.
		s.status = types.StackStatusCreateComplete
		d.say("Protecting the tables against deletion")
		if err := d.apply(ctx, s, images); err != nil {
			return err
		}
	}
	if s.switches {
		// Otherwise a plain "cdk deploy" would change the template. This update moves no alias.
		s.switches = false
		d.say("Letting later releases begin with a canary again")
		if err := d.apply(ctx, s, images); err != nil {
			return err
		}
	}
	d.say("The runner's image is %s@%s", s.outputs["RunnerRepository"], images.runner)
	if images.shell != "" {
		d.say("With a shell and git it is %s@%s. A customer gets it by the parameter RunnerImage of its stack", s.outputs["RunnerRepository"], images.shell)
	}
	if d.wantsSpare() {
		parts, err := d.deploySpare(ctx, *s)
		if err != nil {
			return err
		}
		if parts != s.spare.parts {
			s.spare.parts = parts
			if err := d.apply(ctx, s, images); err != nil {
				return err
			}
		}
	}
	if err := d.login(ctx, s.outputs); err != nil {
		return err
	}
	if d.BuildRunner == "" || d.BuildRunner == NoBuildRunner {
		return nil
	}
	// The control plane creates the runner's identifier. So the first deployment of the
	// stack cannot contain the identifier, and a second deployment sets it.
	builder, err := d.ensureRunner(ctx, *s)
	if err != nil || builder == s.builder {
		return err
	}
	s.builder = builder
	return d.apply(ctx, s, images)
}

// apply deploys the stack, publishes the image and the template, and reads the stack's
// outputs and parameters again.
func (d *Deployment) apply(ctx context.Context, s *state, images images) error {
	r, err := d.synthesize(ctx, *s, images)
	if err != nil {
		return err
	}
	// Publish the new files before the deployed functions refer to them. At the first
	// deployment there is no registry, no bucket and no client yet.
	if s.outputs["TemplateBucket"] != "" {
		if err := d.publish(ctx, s.outputs, r); err != nil {
			return err
		}
	}
	if !s.prepared {
		d.say("Preparing the account for the CDK")
		if _, err := d.cdk(ctx, "bootstrap", "aws://"+s.account+"/"+d.Config.Region, "--app", d.assembly()); err != nil {
			return err
		}
	}
	if rolledBack(s.status) {
		if err := d.unprotect(ctx, d.stack(), s.status); err != nil {
			return err
		}
	}
	d.say("Deploying the stack %s", d.stack())
	parameters, err := d.values(ctx, *s, r)
	if err != nil {
		return err
	}
	args := []string{"deploy", d.stack(), "--app", d.assembly(), "--require-approval", d.approval()}
	for _, p := range parameters {
		args = append(args, "--parameters", d.stack()+":"+p.name+"="+p.value)
	}
	if _, err := d.cdk(ctx, args...); err != nil {
		return err
	}
	deployed, err := d.describe(ctx, d.stack())
	if err != nil {
		return err
	}
	for _, p := range parameters {
		if got := deployed.parameters[p.name]; got != p.value {
			return fmt.Errorf("the stack %s has %s=%s, but this deployment has set %s; another process may have deployed the stack meanwhile", d.stack(), p.name, got, p.value)
		}
	}
	s.outputs, s.parameters = deployed.outputs, deployed.parameters
	return d.publish(ctx, s.outputs, r)
}

// unprotect turns off the termination protection of a stack whose creation was rolled
// back. The CDK turned the protection on before that creation. The CDK must delete the
// stack before it creates the stack again, and CloudFormation refuses to delete a
// protected stack.
func (d *Deployment) unprotect(ctx context.Context, stack string, status types.StackStatus) error {
	d.say("The first creation of the stack %s was rolled back (%s). Turning off its termination protection, so that the CDK can delete it", stack, status)
	_, err := cloudformation.NewFromConfig(d.Config).UpdateTerminationProtection(ctx,
		&cloudformation.UpdateTerminationProtectionInput{StackName: &stack, EnableTerminationProtection: aws.Bool(false)})
	if err != nil {
		return fmt.Errorf("turn off the termination protection of the stack %s: %w", stack, err)
	}
	return nil
}

// approval returns the changes before which the CDK asks.
func (d *Deployment) approval() string {
	if d.Yes {
		return "never"
	}
	return "broadening"
}

// inspect reads the caller's identity and the state of the account.
func (d *Deployment) inspect(ctx context.Context) (state, error) {
	if d.Config.Region == "" {
		return state{}, errors.New("no region is set: set REGION=, AWS_REGION or the region of your profile")
	}
	who, err := sts.NewFromConfig(d.Config).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return state{}, fmt.Errorf("get the identity of the AWS credentials: %w\nSet AWS_PROFILE, or log in as for the AWS CLI", err)
	}
	s := state{account: aws.ToString(who.Account), caller: aws.ToString(who.Arn)}
	if d.Account != "" && d.Account != s.account {
		return state{}, fmt.Errorf("the credentials are for account %s, not for %s: nothing was done", s.account, d.Account)
	}
	kit, err := d.describe(ctx, toolkit)
	if err != nil {
		return state{}, err
	}
	s.prepared = created(kit.status) && bootstrapped(kit.outputs["BootstrapVersion"])
	quota, err := lambda.NewFromConfig(d.Config).GetAccountSettings(ctx, &lambda.GetAccountSettingsInput{})
	if err != nil {
		return state{}, fmt.Errorf("get Lambda's quotas of the account: %w\nThe deployment creates functions. If a service control policy forbids Lambda, use another account", err)
	}
	current, err := d.describe(ctx, d.stack())
	if err != nil {
		return state{}, err
	}
	s.status, s.outputs, s.parameters = current.status, current.outputs, current.parameters
	if limit := quota.AccountLimit; limit != nil {
		s.concurrency = limit.ConcurrentExecutions
		s.reserves = s.parameters["ReservesConcurrency"] == reserves ||
			aws.ToInt32(limit.UnreservedConcurrentExecutions) >= reserved+leastUnreserved
	}
	s.readers = slices.Concat(strings.FieldsFunc(set(s.parameters["RunnerReaders"]), func(r rune) bool { return r == ',' }), d.Customers)
	s.readers = slices.DeleteFunc(s.readers, func(a string) bool { return slices.Contains(d.Without, a) })
	slices.Sort(s.readers)
	if s.readers = slices.Compact(s.readers); slices.Contains(s.readers, AnyAccount) {
		s.readers = []string{AnyAccount}
	}
	if n := len(s.readers); n > maxReaders {
		return state{}, fmt.Errorf("%d accounts would read the image and the template, but a parameter of the stack holds %d: set CUSTOMERS=%s, because both contain no secret", n, maxReaders, AnyAccount)
	}
	if d.BuildRunner != NoBuildRunner {
		s.builder = set(s.parameters["BuildRunner"])
	}
	s.direct = d.DirectLaunch == On || d.DirectLaunch == "" && set(s.parameters["DirectLaunch"]) != ""
	s.alarms = set(cmp.Or(d.AlarmEmail, s.parameters["AlarmEmail"]))
	s.budget = set(cmp.Or(d.Budget, s.parameters["MonthlyBudget"]))
	if s.keys, err = d.existingKeys(ctx, current); err != nil {
		return state{}, err
	}
	if s.spare, err = d.inspectSpare(ctx, s.parameters["SpareStack"]); err != nil {
		return state{}, err
	}
	s.signs = cmp.Or(d.SignsWith, s.signed())
	s.table, err = d.restoredTable(ctx, s.parameters["RestoredTable"])
	// A canary would take a switch to another table or key back. CloudFormation removes the old table from the roles before it
	// moves an alias, so the old versions, which keep nine of ten invocations, fail. If the key that signs is lost, the alarm
	// of the API is on already, and CodeDeploy starts no release.
	s.switches = created(s.status) && (d.AllAtOnce || s.table != set(s.parameters["RestoredTable"]) || s.signs != s.signed())
	return s, err
}

// restoredTable returns the wanted value of the parameter RestoredTable: the table's name
// and its stream, as in the stream's ARN.
func (d *Deployment) restoredTable(ctx context.Context, current string) (string, error) {
	if d.Table == "" || d.Table == OwnTable {
		return set(cmp.Or(d.Table, current)), nil
	}
	found, err := dynamodb.NewFromConfig(d.Config).DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &d.Table})
	if err != nil {
		return "", fmt.Errorf("describe the restored table %s: %w", d.Table, err)
	}
	_, value, _ := strings.Cut(aws.ToString(found.Table.LatestStreamArn), ":table/")
	if s := found.Table.StreamSpecification; value == "" || s == nil || !aws.ToBool(s.StreamEnabled) {
		return "", fmt.Errorf("table %s has no stream. Run `fairlead ops restore --stage %s --region %s --table %s` first", d.Table, d.Stage, d.Config.Region, d.Table)
	}
	return value, nil
}

// leastBootstrap is the oldest version of the CDK's bootstrap stack that the synthesized
// stacks accept.
const leastBootstrap = 6

// bootstrapped reports whether the bootstrap stack of this version is new enough.
func bootstrapped(version string) bool {
	n, err := strconv.Atoi(version)
	return err == nil && n >= leastBootstrap
}

// described is CloudFormation's description of a stack.
type described struct {
	status     types.StackStatus // "": the stack does not exist
	outputs    map[string]string
	parameters map[string]string
}

// describe gets the description of a stack from CloudFormation.
func (d *Deployment) describe(ctx context.Context, stack string) (described, error) {
	found, err := cloudformation.NewFromConfig(d.Config).DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &stack})
	var refused smithy.APIError
	if errors.As(err, &refused) && refused.ErrorCode() == "ValidationError" && strings.Contains(refused.ErrorMessage(), "does not exist") {
		return described{}, nil
	}
	if err != nil {
		return described{}, fmt.Errorf("describe the stack %s: %w", stack, err)
	}
	out := described{outputs: map[string]string{}, parameters: map[string]string{}}
	for _, s := range found.Stacks {
		out.status = s.StackStatus
		for _, o := range s.Outputs {
			out.outputs[aws.ToString(o.OutputKey)] = aws.ToString(o.OutputValue)
		}
		for _, p := range s.Parameters {
			out.parameters[aws.ToString(p.ParameterKey)] = aws.ToString(p.ParameterValue)
		}
	}
	return out, nil
}

// announce prints the steps of the deployment.
func (d *Deployment) announce(s state) {
	d.say("Stage %s, in account %s and region %s, as %s:", d.Stage, s.account, d.Config.Region, s.caller)
	step := func(format string, args ...any) { d.say("  - "+format, args...) }
	if !s.reserves {
		d.say("Warning: this account may run %d Lambda functions at once, so no function gets reserved concurrency, and a busy API may delay the rest. Ask AWS for %d, then run the command again:\n  https://%s.console.aws.amazon.com/servicequotas/home/services/lambda/quotas/L-B99A9384",
			s.concurrency, wantedConcurrency, d.Config.Region)
	}
	step("build the functions, the runner's image and both templates on this machine")
	if !s.prepared {
		step("prepare the account for the CDK: create the stack %s with a bucket, a registry and five roles", toolkit)
	}
	if rolledBack(s.status) {
		step("delete the rest of the stack %s, whose first creation was rolled back: %s", d.stack(), s.status)
	}
	verb := "create"
	if created(s.status) {
		verb = "update"
	}
	step("%s the stack %s", verb, d.stack())
	if s.keys != "" {
		step("use the replicas that the stack %s of this region keeps, and make no keys", d.spareStack())
	}
	switch {
	case s.direct:
		step("run agents beside the control plane that start jobs in customers' clusters (direct launch)")
	case d.DirectLaunch == Off && set(s.parameters["DirectLaunch"]) != "":
		step("remove the agents of direct launch")
	}
	step("publish the image in the stack's registry and the template in its bucket, unless they exist")
	if !d.NoShell {
		step("publish the image with a shell and git beside it")
	}
	switch {
	case slices.Contains(s.readers, AnyAccount):
		step("let every AWS account read both: they contain no secret")
	case len(s.readers) > 0:
		step("let these accounts read both: %s", strings.Join(s.readers, ", "))
	default:
		step("let no other account read them")
	}
	open := d.undecided(s)
	if s.alarms != "" {
		step("send alarms to %s; AWS asks this address for a confirmation first", s.alarms)
	} else {
		if slices.Contains(open, errNoAlarms) {
			step("ask for ALARM_EMAIL=: a mail address that gets alarms, or none")
		}
		step("send alarms to no one: set ALARM_EMAIL= to a mail address")
	}
	if s.budget != "" {
		step("raise an alarm if this account costs more than $%s a month, or if AWS forecasts it", s.budget)
	} else {
		if slices.Contains(open, errNoBudget) {
			step("ask for MONTHLY_BUDGET=: an amount in US dollars, above which the cost raises an alarm, or none")
		}
		step("raise no alarm for what this account costs: set MONTHLY_BUDGET= to an amount in US dollars")
	}
	if name, _, restored := strings.Cut(s.table, "/"); restored {
		step("let the functions serve the restored table %s instead of the stack's own", name)
	}
	if s.switches {
		step("give all invocations to the new functions at once, without a canary, and update the stack a second time, so that later releases have one")
	}
	d.announceSpare(s.spare, s.parameters["SpareStack"], step)
	step("log the CLI in with a token named %s, unless it is logged in", d.Operator)
	switch d.BuildRunner {
	case "":
	case NoBuildRunner:
		step("remove the build runner, if it exists")
	default:
		step("create the runner %s and run its agent beside the control plane, unless it exists", d.BuildRunner)
	}
}

func (d *Deployment) say(format string, args ...any) {
	fmt.Fprintf(d.Out, format+"\n", args...)
}

// assembly is the folder of the synthesized stacks.
func (d *Deployment) assembly() string { return filepath.Join(d.Root, "bin", "infra") }

// cdk runs the CDK's CLI in the root, where cdk.json is.
func (d *Deployment) cdk(ctx context.Context, args ...string) ([]byte, error) {
	c := Command{Args: slices.Concat([]string{"npx", "--yes", CDK}, args, []string{"--no-notices", "--no-version-reporting"}),
		Folder: d.Root, Env: []string{"AWS_REGION=" + d.Config.Region}, Interactive: true}
	return d.Run(ctx, c)
}
