package control

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
)

// None is the value of a parameter that is not set. It is not "", because the CDK's CLI
// takes an empty value for the previous value.
const None = "none"

// The stack's parameters: the values that a deployment publishes. They are parameters and
// not context of the CDK, because CloudFormation keeps the values of parameters: a plain
// `cdk deploy` changes none of them.
const (
	ParameterDigest      = "RunnerDigest"
	ParameterTemplate    = "TemplateDigest"
	ParameterReaders     = "RunnerReaders"
	ParameterAlarmEmail  = "AlarmEmail"
	ParameterBuildRunner = "BuildRunner"
	ParameterBuildKeys   = "BuildRunnerKeys"
	ParameterReserves    = "ReservesConcurrency"
	ParameterBudget      = "MonthlyBudget"
	ParameterTable       = "RestoredTable"
	ParameterSigns       = "SignsWith"
	ParameterDirect      = "DirectLaunch"
	ParameterShell       = "ShellDigest"
	ParameterSpare       = "SpareStack"
	ParameterKeys        = "ExistingKeys"
	ParameterVersion     = "Version"
	ParameterLaterKey    = "LaterSigningKey"
)

// Values of ParameterSigns: the key that signs job specs. Runners pin both keys.
const (
	SignsFirst = "First"
	SignsSpare = "Spare"
)

// Values of ParameterReserves.
const (
	Reserves    = "Yes"
	ReservesNot = "No"
)

// parameter is a parameter of the stack, and the condition that its value is set.
type parameter struct {
	value string              // a reference to the value
	isSet awscdk.CfnCondition // nil: only a rule uses the parameter, and cfn-lint rejects an unused condition
}

// reserved are the concurrent executions that the stack reserves for a function, if
// ParameterReserves permits it. Other functions of the account cannot use them, and
// neither can controlapi. A function cannot use more than its reservation: 400
// executions of 100 ms serve 4,000 requests a second, eight times the limit of the API.
// sessionapi needs 60 for 300 sessions a second, because STS takes two thirds of their
// 200 ms.
// `make deploy` checks that the account's quota is large enough.
var reserved = map[string]float64{"sessionapi": 100, "runnerapi": 400, "dispatch": 100, "sweep": 5}

// declare makes the parameters, the conditions, and the rules that reject values that do
// not belong together.
func (b *builder) declare() {
	b.parameters = map[string]parameter{}
	for _, p := range []struct{ id, unset, pattern, says, doc string }{
		{ParameterDigest, None, `none|sha256:[0-9a-f]{64}`, "the digest of an image: sha256: and 64 hexadecimal digits", "Digest of the image in the stack's registry that customers' stacks start"},
		{ParameterTemplate, None, `none|[0-9a-f]{64}`, "a SHA-256 of 64 hexadecimal digits", "SHA-256 of the template in the stack's bucket that customers install"},
		{ParameterReaders, None, `none|any|[0-9]{12}(,[0-9]{12})*`, "accounts of twelve digits, separated by commas, or any", "Customers' accounts that may pull the image and read the template"},
		{ParameterAlarmEmail, None, `none|[^@\s]+@[^@\s]+`, "a mail address", "Mail address that gets alarms"},
		{ParameterBuildRunner, None, `none|run_[0-9a-z]{26}`, "the identifier of a runner: `fairlead runner create NAME --aws-role ARN` prints it", "Identifier of the build runner"},
		{ParameterBuildKeys, None, `none|[A-Za-z0-9+/]{43}=(,[A-Za-z0-9+/]{43}=)*`, "public keys in base64, separated by commas", "Public keys of the control plane that the build runner pins"},
		{ParameterDirect, None, `none|sha256:[0-9a-f]{64}`, "the digest of an image: sha256: and 64 hexadecimal digits", "Digest of the image in the stack's registry that launches jobs in customers' clusters directly"},
		{ParameterShell, None, `none|sha256:[0-9a-f]{64}`, "the digest of an image: sha256: and 64 hexadecimal digits", "Digest of the image with a shell and git in the stack's registry, of the same release as RunnerDigest"},
		{ParameterBudget, None, `none|[1-9][0-9]{0,7}`, "an amount in whole dollars", "What this AWS account may cost a month in US dollars before an alarm; it needs AlarmEmail to reach a person"},
		{ParameterTable, None, `none|[A-Za-z0-9_.-]{3,255}/stream/[0-9T:.-]+`, "the table's name, /stream/ and the stream's label: `make deploy TABLE=NAME` finds it", "Restored table that the functions serve instead of the stack's own, with its stream"},
		{ParameterSpare, None, `none|[a-z]{2}(-[a-z]+)+-[0-9]/[A-Za-z0-9_-]{1,50}/[a-z0-9.-]{3,63}/[a-z0-9.-]{3,63}`, "REGION/VAULT/BUCKET/BUCKET: `make deploy SPARE_REGION=REGION` finds them", "Region, vault, bucket of blobs and bucket of logs of the spare stack, which get copies"},
		{ParameterKeys, None, `none|` + keysPattern, "the parameter PrimaryKeys of the spare stack in this Region: `make deploy` takes it when it creates the stack", "Ids of five keys of this Region that the stack uses instead of making its own, separated by commas; only for a new stack"},
		{ParameterVersion, None, `none|[A-Za-z0-9][A-Za-z0-9._+-]{0,63}`, "a version such as v1.4.0", "Version of the release, which the control plane reports; it is no part of the functions' code, so that each checkout of a commit builds the same"},
		{ParameterSigns, SignsFirst, `First|Spare`, "First or Spare", "Key that signs job specs; Spare if the first is lost"},
		{ParameterLaterKey, None, `none|arn:aws(-[a-z]+)*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+`, "the ARN of a key in KMS", "Key that signs job specs in place of both keys of the stack, after they were rotated; of this account and Region"},
		{ParameterReserves, ReservesNot, `Yes|No`, "Yes or No", "Whether functions have reserved concurrency; it needs the account's quota of 1,000"},
	} {
		value := awscdk.NewCfnParameter(b.stack, jsii.String(p.id), &awscdk.CfnParameterProps{
			Type: jsii.String("String"), Description: jsii.String(p.doc + "; " + p.unset + " by default"), Default: p.unset,
			AllowedPattern: jsii.String("^(" + p.pattern + ")$"), ConstraintDescription: jsii.String("Use " + p.says + ", or " + p.unset + "."),
		}).ValueAsString()
		declared := parameter{value: *value}
		if p.id != ParameterBuildKeys {
			declared.isSet = awscdk.NewCfnCondition(b.stack, jsii.String("Has"+p.id), &awscdk.CfnConditionProps{
				Expression: awscdk.Fn_ConditionNot(awscdk.Fn_ConditionEquals(value, p.unset)),
			})
		}
		b.parameters[p.id] = declared
	}
	for _, r := range []struct{ id, with, needs, says string }{
		{"ImageHasItsTemplate", ParameterDigest, ParameterTemplate, "The image and the template are of one release: RunnerDigest needs TemplateDigest."},
		{"TemplateHasItsImage", ParameterTemplate, ParameterDigest, "The image and the template are of one release: TemplateDigest needs RunnerDigest."},
		{"BuildRunnerHasAnImage", ParameterBuildRunner, ParameterDigest, "BuildRunner needs RunnerDigest: ECS starts it from the image in this stack's registry."},
		{"ShellIsOfARelease", ParameterShell, ParameterDigest, "Both images are of one release: ShellDigest needs RunnerDigest."},
		{"DirectLaunchHasAnImage", ParameterDirect, ParameterDigest, "DirectLaunch needs RunnerDigest: its jobs run in that image."},
		{"BuildRunnerHasKeys", ParameterBuildRunner, ParameterBuildKeys, "BuildRunner needs BuildRunnerKeys: it runs only jobs that one of these keys signed."},
	} {
		set := func(id string) awscdk.ICfnRuleConditionExpression {
			return awscdk.Fn_ConditionNot(awscdk.Fn_ConditionEquals(b.parameters[id].value, None))
		}
		awscdk.NewCfnRule(b.stack, jsii.String(r.id), &awscdk.CfnRuleProps{
			RuleCondition: set(r.with), Assertions: &[]*awscdk.CfnRuleAssertion{{Assert: set(r.needs), AssertDescription: jsii.String(r.says)}},
		})
	}
}

// when returns a reference that is then if the parameter is set, and otherwise or.
func (b *builder) when(id string, then, or any) awscdk.ICfnRuleConditionExpression {
	return awscdk.Fn_ConditionIf(b.parameters[id].isSet.LogicalId(), then, or)
}

// onlyAll makes all resources so far exist only if the parameter is set, whose logical ids
// begin with the prefix.
func (b *builder) onlyAll(id, prefix string) {
	for _, c := range *b.stack.Node().Children() {
		if r, ok := c.(awscdk.CfnResource); ok && strings.HasPrefix(*c.Node().Id(), prefix) {
			b.only(id, r)
		}
	}
}

// only makes a resource exist only if the parameter is set.
func (b *builder) only(id string, r awscdk.CfnResource) {
	r.CfnOptions().SetCondition(b.parameters[id].isSet)
}
