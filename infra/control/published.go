package control

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecr"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/policy"
)

// templateKey returns the key of a published template by its SHA-256. The object under
// a key never changes.
func templateKey(digest string) string { return "runner/" + digest + ".yaml" }

// AnyAccount as the value of ParameterReaders lets every AWS account read the image and
// the template.
const AnyAccount = "any"

// published makes the repository of the runner's images and the bucket of the runner's
// templates. Customers install from them. The repository and the bucket contain no
// secrets. Only the accounts of ParameterReaders can read them, or every AWS account with a
// signed request. The repositories of an app are made together with the app.
func (b *builder) published() {
	props := &awsecr.CfnRepositoryProps{
		RepositoryName:             jsii.String(b.name + "/runner"),
		ImageTagMutability:         jsii.String("IMMUTABLE"),
		ImageScanningConfiguration: &awsecr.CfnRepository_ImageScanningConfigurationProperty{ScanOnPush: jsii.Bool(true)},
		EncryptionConfiguration:    &awsecr.CfnRepository_EncryptionConfigurationProperty{EncryptionType: jsii.String("AES256")},
		LifecyclePolicy: &awsecr.CfnRepository_LifecyclePolicyProperty{LifecyclePolicyText: jsii.String(
			`{"rules":[{"rulePriority":1,"description":"a push that was never tagged","selection":{"tagStatus":"untagged","countType":"sinceImagePushed","countUnit":"days","countNumber":14},"action":{"type":"expire"}}]}`)},
	}
	templates := awss3.CfnBucket_RuleProperty{Id: jsii.String("AbortUploads"), Status: jsii.String("Enabled"),
		AbortIncompleteMultipartUpload: &awss3.CfnBucket_AbortIncompleteMultipartUploadProperty{DaysAfterInitiation: jsii.Number(2)}}
	// The accounts are values of a condition and not principals, because S3 and ECR refuse
	// a policy whose principal does not exist any more: one closed account would block each
	// deployment. A request without a signature has no account, so it does not match "*".
	readers := b.parameters[ParameterReaders].value
	every := awscdk.NewCfnCondition(b.stack, jsii.String("EveryAccountReads"), &awscdk.CfnConditionProps{Expression: awscdk.Fn_ConditionEquals(readers, AnyAccount)})
	customers := map[string]map[string]any{"StringLike": {"aws:PrincipalAccount": awscdk.Fn_ConditionIf(every.LogicalId(), []string{"*"}, awscdk.Fn_Split(jsii.String(","), jsii.String(readers), nil))}}
	// There is no Resource: the policy belongs to the repository.
	props.RepositoryPolicyText = b.when(ParameterReaders, policy.Document(policy.Statement{Sid: "CustomersPull", AnyPrincipal: true, Conditions: customers,
		Actions: []string{"ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability"}}), awscdk.Aws_NO_VALUE())
	b.templates = b.bucket("Templates", "", templates, policy.Statement{
		Sid: "CustomersRead", When: *b.parameters[ParameterReaders].isSet.LogicalId(), AnyPrincipal: true, Conditions: customers, Actions: []string{"s3:GetObject"}})
	// S3 documents which conditions make a policy without a principal private, and this
	// condition is not among them. If S3 takes the policy for public, these two blocks
	// would refuse it or ignore its readers. The blocks of ACLs stay.
	b.templates.SetPublicAccessBlockConfiguration(&awss3.CfnBucket_PublicAccessBlockConfigurationProperty{
		BlockPublicAcls: jsii.Bool(true), IgnorePublicAcls: jsii.Bool(true), BlockPublicPolicy: jsii.Bool(false), RestrictPublicBuckets: jsii.Bool(false),
	})
	b.runnerImages = awsecr.NewCfnRepository(b.stack, jsii.String("RunnerImages"), props)
	// The repository has a fixed name. If a failed first deployment left it behind,
	// the second deployment would fail.
	keep(b.runnerImages)
}

// runnerImage returns the image that customers' stacks start; "" if none is published.
func (b *builder) runnerImage() string {
	return *b.when(ParameterDigest, b.ownImage(), b.props.RunnerImage).ToString()
}

// templateURL returns the URL of the template that customers install; "" if none is
// published.
func (b *builder) templateURL() string {
	own := "https://" + *b.templates.AttrRegionalDomainName() + "/" + templateKey(b.parameters[ParameterTemplate].value)
	return *b.when(ParameterTemplate, own, b.props.TemplateURL).ToString()
}

// ownImage returns the image in the stack's registry that ParameterDigest names.
func (b *builder) ownImage() string { return b.imageOf(ParameterDigest) }

// imageOf returns the image in the stack's registry whose digest is the value of the parameter.
func (b *builder) imageOf(parameter string) string {
	return *b.runnerImages.AttrRepositoryUri() + "@" + b.parameters[parameter].value
}
