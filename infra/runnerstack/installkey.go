package runnerstack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssecretsmanager"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/policy"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// seedLength is the number of letters and digits of a seed: 64 of 62 kinds are 381 bits. The agent refuses fewer than 43.
const seedLength = 64

// seedName returns the name of the secret with the seed of the install keys. It has the identifier of the stack, because the
// secret of a deleted stack stays.
func (b *builder) seedName() string {
	return *awscdk.Token_AsString(onIf(b.p.newSeed, b.newSeedName(), b.p.seed.ValueAsString()), nil)
}

func (b *builder) newSeedName() string {
	return "fairlead/" + *b.p.installID.ValueAsString() + "/install-key-" + stackUUID()
}

// seedARN returns the pattern of the secret's ARN, whose end is six random characters. The parameter has a name and no ARN, so a
// link of the vendor cannot name a secret in another account, whose seed the vendor would know.
func (b *builder) seedARN() string {
	return *awscdk.Token_AsString(onIf(b.p.newSeed, b.seed.Ref(), b.arn("secretsmanager", "secret:"+*b.p.seed.ValueAsString()+"-??????")), nil)
}

// makeSeed makes the seed. No tool has a role that reads it: the boundary denies each secret without the tag of the install, and
// this secret has no tag. With Isolation Process there is no seed, because tools have the identity of the agent.
func (b *builder) makeSeed() {
	b.seed = awssecretsmanager.NewCfnSecret(b.stack, jsii.String("InstallKeySeed"), &awssecretsmanager.CfnSecretProps{
		Name:        jsii.String(b.newSeedName()),
		Description: jsii.String("Fairlead: seed of the install keys, which open the secrets of the install. Back it up. Only the runner and the steps of its jobs read it"),
		KmsKeyId:    awscdk.Token_AsString(onIf(b.p.newKey, awscdk.Aws_NO_VALUE(), b.p.stateKey.ValueAsString()), nil),
		GenerateSecretString: &awssecretsmanager.CfnSecret_GenerateSecretStringProperty{
			PasswordLength: jsii.Number(seedLength), ExcludePunctuation: jsii.Bool(true), IncludeSpace: jsii.Bool(false), RequireEachIncludedType: jsii.Bool(true)},
	})
	b.seed.CfnOptions().SetCondition(b.p.newSeed)
	keep(b.seed)
	roles := []*string{b.taskRole.Ref()}
	for _, o := range operations {
		roles = append(roles, b.steps[o.name].Ref())
	}
	b.seedAccess = awsiam.NewCfnPolicy(b.stack, jsii.String("InstallKeyAccess"), &awsiam.CfnPolicyProps{
		PolicyName: jsii.String("install-key"), Roles: &roles, PolicyDocument: policy.Document(b.readsSeed()...),
	})
	b.seedAccess.CfnOptions().SetCondition(b.p.hasTasks)
}

// readsSeed returns the statements that let the agent and the steps read the seed.
func (b *builder) readsSeed() []policy.Statement {
	return []policy.Statement{
		{Sid: "ReadSeed", Actions: []string{"secretsmanager:GetSecretValue"}, Resources: []string{b.seedARN()}},
		// A secret under AWS's own key needs no permission for the key. A new secret is under that key, or under the states' key of
		// the customer.
		{Sid: "OpenSeed", Actions: []string{"kms:Decrypt"}, Resources: whole(awscdk.Token_AsList(onIf(b.p.newSeed, []string{b.keyARN()}, []string{"arn:" + b.partition + ":kms:*:" + b.account + ":key/*"}), nil)),
			Conditions: map[string]map[string]any{"StringLike": {"kms:ViaService": "secretsmanager.*.amazonaws.com"}}},
	}
}

// seedJSON returns the part of the agent's file that names the seed. The runner in the sandbox of an app does not have the seed that
// the stack makes.
func (b *builder) seedJSON() string {
	return `,"install_key":"` + runnerspec.StoreSecretsManager + ":" + b.seedName() + `"` + *awscdk.Token_AsString(onIf(b.p.newSeed, `,"install_key_by_default":true`, ""), nil)
}
