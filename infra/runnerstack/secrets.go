package runnerstack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/fargate"
	"github.com/fairlead/fairlead/infra/internal/policy"
)

// betweenNameAndARN separates the parts of an entry NAME=ARN.
const betweenNameAndARN = "=arn:"

// secretsJSON returns the secrets as the agent's file has them: an object of references by
// name. The parameter's pattern permits no quotes and no backslashes.
func (b *builder) secretsJSON() string {
	entries := awscdk.Fn_Join(jsii.String(`","`), awscdk.Fn_Split(jsii.String(","), b.p.secrets.ValueAsString(), nil))
	object := `{"` + *awscdk.Fn_Join(jsii.String(`":"arn:`), awscdk.Fn_Split(jsii.String(betweenNameAndARN), entries, nil)) + `"}`
	return *awscdk.Token_AsString(onIf(b.p.hasSecrets, object, "{}"), nil)
}

// secretARNs returns the ARNs of the secrets. CloudFormation has no loop and no length of a
// list, so the parameter is repeated: each of the maxSecrets places then has an entry, and
// the ARNs of fewer secrets occur several times.
func (b *builder) secretARNs() []string {
	repeated := *b.p.secrets.ValueAsString()
	for range maxSecrets - 1 {
		repeated += "," + *b.p.secrets.ValueAsString()
	}
	entries := awscdk.Fn_Split(jsii.String(","), jsii.String(repeated), nil)
	var arns []string
	for i := range maxSecrets {
		reference := awscdk.Fn_Select(jsii.Number(1), awscdk.Fn_Split(jsii.String(betweenNameAndARN), awscdk.Fn_Select(jsii.Number(float64(i)), entries), nil))
		arns = append(arns, "arn:"+*awscdk.Fn_Select(jsii.Number(0), awscdk.Fn_Split(jsii.String("#"), reference, nil)))
	}
	return arns
}

// readsSecrets returns the statements that let a step read the secrets.
func (b *builder) readsSecrets() []policy.Statement {
	return fargate.ReadsSecrets(b.secretARNs(), "arn:"+b.partition+":kms:*:"+b.account+":key/*")
}

// makeSecretAccess lets the steps of all operations read the secrets. A step gives its tool
// only the secrets of its component. The roles of operations get no such permission: with
// their credentials any module of the app could read all of the secrets.
func (b *builder) makeSecretAccess() {
	var roles []*string
	for _, o := range operations {
		roles = append(roles, b.steps[o.name].Ref())
	}
	b.stepSecrets = awsiam.NewCfnPolicy(b.stack, jsii.String("StepSecrets"), &awsiam.CfnPolicyProps{
		PolicyName: jsii.String("secrets"), Roles: &roles, PolicyDocument: policy.Document(b.readsSecrets()...),
	})
	b.stepSecrets.CfnOptions().SetCondition(b.p.hasSecrets)
}
