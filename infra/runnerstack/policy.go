package runnerstack

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/policy"
)

// policyJSON returns the end of the agent's file that names the customer's policy and its ledger; "" without a policy.
func (b *builder) policyJSON() string {
	fields := `,"policy":"ssm:` + *b.p.policy.ValueAsString() + `","ledger":"s3:` + b.bucketName() + "/" + strings.TrimSuffix(ledgerPrefix, "/") + `"`
	return *awscdk.Token_AsString(onIf(b.p.hasPolicy, fields, ""), nil)
}

// enforcesPolicy returns the statements that let a step read the policy, and use the ledger.
func (b *builder) enforcesPolicy() []policy.Statement {
	ledger := b.bucketARN() + "/" + ledgerPrefix
	return []policy.Statement{
		{Sid: "ReadPolicy", Actions: []string{"ssm:GetParameter"}, Resources: []string{b.arn("ssm", "parameter"+*b.p.policy.ValueAsString())}},
		{Sid: "FindLedger", Actions: []string{"s3:ListBucket"}, Resources: []string{b.bucketARN()}, Conditions: map[string]map[string]any{"StringLike": {"s3:prefix": ledgerPrefix + "*"}}},
		{Sid: "UseLedger", Actions: []string{"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}, Resources: []string{ledger + "*"}},
		{Sid: "OpenLedger", Actions: []string{"kms:GenerateDataKey", "kms:Decrypt"}, Resources: []string{b.keyARN()}},
	}
}

// makePolicyAccess lets the steps of all operations enforce the policy. The roles of operations get no such permission. The boundary
// denies them the ledger, and changes of parameters that do not have the tag of the install, as the policy: a vendor's module must
// neither change the policy nor make room under its ceilings.
func (b *builder) makePolicyAccess() {
	var roles []*string
	for _, o := range operations {
		roles = append(roles, b.steps[o.name].Ref())
	}
	b.stepPolicy = awsiam.NewCfnPolicy(b.stack, jsii.String("StepPolicy"), &awsiam.CfnPolicyProps{
		PolicyName: jsii.String("policy"), Roles: &roles, PolicyDocument: policy.Document(b.enforcesPolicy()...),
	})
	b.stepPolicy.CfnOptions().SetCondition(b.p.hasPolicy)
}
