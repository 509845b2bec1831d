package runnerstack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecr"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/policy"
)

// Prefixes in the state bucket. Terraform writes its lock next to the state, with the
// suffix lockSuffix.
const (
	statePrefix = "state/"
	planPrefix  = "plans/"
	lockSuffix  = ".tflock"
	// Each operation may replace an archive of a provider, so a step uses an archive only with a
	// hash of its lock file.
	providerPrefix = "providers/"
	// Only steps reach it: it has what the customer's policy decides about several jobs.
	ledgerPrefix = ".led/" // short, because a boundary has few characters
)

// othersStayOut returns the statement that denies the actions on the resources to the
// roles of other installs in the account. Each install's roles may use S3 and KMS, and
// its boundary protects only its own states, so the bucket and the key must protect
// themselves. The statement denies no other principal: the account decides who else
// may read states, and keeps access to the key.
func (b *builder) othersStayOut(actions string, resources ...string) policy.Statement {
	return policy.Statement{Sid: "OtherInstallsStayOut", Deny: true, AnyPrincipal: true, Actions: []string{actions}, Resources: resources,
		Conditions: map[string]map[string]any{
			"ArnLike":    {"aws:PrincipalArn": []string{b.iamARN("role/fairlead/ins_*"), b.iamARN("role/fairlead-app/ins_*")}},
			"ArnNotLike": {"aws:PrincipalArn": b.iamARN("role" + b.ownPath() + "*")},
		}}
}

// keep retains a resource when the stack is deleted or the resource is removed. If
// the first creation of the stack fails, the rollback still removes the resource: the
// bucket has no state yet, and each key that stays costs a dollar a month.
func keep(r awscdk.CfnResource) {
	r.ApplyRemovalPolicy(awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE, nil) // CloudFormation's RetainExceptOnCreate
}

// The bucket and the key of the states are the stack's own, or those that an earlier
// stack of the install left behind. Policies of the retained bucket and key let in the
// new stack's roles, because they know roles by the install's path.
func (b *builder) bucketName() string {
	return *awscdk.Token_AsString(onIf(b.p.newBucket, b.state.Ref(), b.p.stateBucket.ValueAsString()), nil)
}

func (b *builder) bucketARN() string {
	return *awscdk.Token_AsString(onIf(b.p.newBucket, b.state.AttrArn(), "arn:"+b.partition+":s3:::"+*b.p.stateBucket.ValueAsString()), nil)
}

func (b *builder) keyARN() string {
	return *awscdk.Token_AsString(onIf(b.p.newKey, b.stateKey.AttrArn(), b.p.stateKey.ValueAsString()), nil)
}

// storage makes the bucket, the key, the repositories and the log. The bucket and the
// key outlive the stack, because the states are the only record of what was made in
// the account.
func (b *builder) storage() {
	root := "arn:" + b.partition + ":iam::" + b.account + ":root"
	b.stateKey = awskms.NewCfnKey(b.stack, jsii.String("StateKey"), &awskms.CfnKeyProps{
		Description: jsii.String("Fairlead: encrypts Terraform states and saved plans"), EnableKeyRotation: jsii.Bool(true), PendingWindowInDays: jsii.Number(30),
		KeyPolicy: policy.Document(
			policy.Statement{Sid: "TheAccountDecides", Principal: policy.AWS(root), Actions: []string{"kms:*"}, Resources: []string{"*"}},
			b.othersStayOut("kms:*", "*")),
	})
	b.stateKey.CfnOptions().SetCondition(b.p.newKey)
	keep(b.stateKey)

	b.state = awss3.NewCfnBucket(b.stack, jsii.String("StateBucket"), &awss3.CfnBucketProps{
		PublicAccessBlockConfiguration: &awss3.CfnBucket_PublicAccessBlockConfigurationProperty{
			BlockPublicAcls: jsii.Bool(true), BlockPublicPolicy: jsii.Bool(true), IgnorePublicAcls: jsii.Bool(true), RestrictPublicBuckets: jsii.Bool(true),
		},
		OwnershipControls: &awss3.CfnBucket_OwnershipControlsProperty{
			Rules: []*awss3.CfnBucket_OwnershipControlsRuleProperty{{ObjectOwnership: jsii.String("BucketOwnerEnforced")}},
		},
		VersioningConfiguration: &awss3.CfnBucket_VersioningConfigurationProperty{Status: jsii.String("Enabled")},
		BucketEncryption: &awss3.CfnBucket_BucketEncryptionProperty{
			ServerSideEncryptionConfiguration: []*awss3.CfnBucket_ServerSideEncryptionRuleProperty{{
				ServerSideEncryptionByDefault: &awss3.CfnBucket_ServerSideEncryptionByDefaultProperty{SseAlgorithm: jsii.String("aws:kms"), KmsMasterKeyId: jsii.String(b.keyARN())},
				BucketKeyEnabled:              jsii.Bool(true),
			}},
		},
		// Versions of a state never expire. Plans are useless once applied.
		LifecycleConfiguration: &awss3.CfnBucket_LifecycleConfigurationProperty{Rules: []*awss3.CfnBucket_RuleProperty{
			{Id: jsii.String("ExpirePlans"), Status: jsii.String("Enabled"), Prefix: jsii.String(planPrefix), ExpirationInDays: jsii.Number(30),
				NoncurrentVersionExpiration: &awss3.CfnBucket_NoncurrentVersionExpirationProperty{NoncurrentDays: jsii.Number(1)}},
			// A provider that jobs still use is then downloaded once more.
			{Id: jsii.String("ExpireProviders"), Status: jsii.String("Enabled"), Prefix: jsii.String(providerPrefix), ExpirationInDays: jsii.Number(30),
				NoncurrentVersionExpiration: &awss3.CfnBucket_NoncurrentVersionExpirationProperty{NoncurrentDays: jsii.Number(1)}},
			{Id: jsii.String("AbortUploads"), Status: jsii.String("Enabled"),
				AbortIncompleteMultipartUpload: &awss3.CfnBucket_AbortIncompleteMultipartUploadProperty{DaysAfterInitiation: jsii.Number(2)}},
		}},
	})
	b.state.CfnOptions().SetCondition(b.p.newBucket)
	keep(b.state)
	arn := *b.state.AttrArn()
	closed := awss3.NewCfnBucketPolicy(b.stack, jsii.String("StateBucketPolicy"), &awss3.CfnBucketPolicyProps{
		Bucket: b.state.Ref(), PolicyDocument: policy.Document(policy.OnlyTLS("s3", arn, arn+"/*"), b.othersStayOut("s3:*", arn, arn+"/*")),
	})
	closed.CfnOptions().SetCondition(b.p.newBucket)
	keep(closed)

	// Images do not expire, because a deployed image may be pulled again by its
	// digest.
	repository := func(id, name string) awsecr.CfnRepository {
		r := awsecr.NewCfnRepository(b.stack, jsii.String(id), &awsecr.CfnRepositoryProps{
			RepositoryName:     jsii.String("fairlead/" + *b.p.installID.ValueAsString() + "/" + name),
			ImageTagMutability: jsii.String("IMMUTABLE"), ImageScanningConfiguration: &awsecr.CfnRepository_ImageScanningConfigurationProperty{ScanOnPush: jsii.Bool(true)},
			EncryptionConfiguration: &awsecr.CfnRepository_EncryptionConfigurationProperty{EncryptionType: jsii.String("AES256")},
			EmptyOnDelete:           jsii.Bool(true),
			// The boundary lets operations push only to repositories of the install.
			Tags: &[]*awscdk.CfnTag{{Key: jsii.String(tagResource), Value: b.p.installID.ValueAsString()}},
		})
		return r
	}
	b.images, b.artifacts = repository("Images", "images"), repository("Artifacts", "artifacts")

	b.log = awslogs.NewCfnLogGroup(b.stack, jsii.String("RunnerLog"), &awslogs.CfnLogGroupProps{
		LogGroupName: jsii.String("/fairlead/" + *b.p.installID.ValueAsString() + "/runner"), RetentionInDays: b.p.logDays.ValueAsNumber(), KmsKeyId: b.logKey(),
	})
	b.log.ApplyRemovalPolicy(awscdk.RemovalPolicy_DESTROY, nil)
}

// logKey returns the key of the log groups; CloudWatch's own key encrypts them if the
// customer gives none.
func (b *builder) logKey() *string {
	return awscdk.Token_AsString(onIf(b.p.hasLogKey, b.p.logKey.ValueAsString(), awscdk.Aws_NO_VALUE()), nil)
}
