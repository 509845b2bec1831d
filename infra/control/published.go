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
func templateKey(digest string) string { return "runner/" + digest + ".json" }

// published makes the repository of the runner's images and the bucket of the runner's
// templates. Customers install from them. The repository and the bucket contain no
// secrets. Only the accounts of ParameterReaders can read them. S3's block of public access
// stays on, because a bucket that is public by mistake is an incident. The
// repositories of an app are made together with the app.
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
	customers := map[string]any{"AWS": awscdk.Fn_Split(jsii.String(","), jsii.String(b.parameters[ParameterReaders].value), nil)}
	// There is no Resource: the policy belongs to the repository.
	props.RepositoryPolicyText = b.when(ParameterReaders, policy.Document(policy.Statement{Sid: "CustomersPull", Principal: customers,
		Actions: []string{"ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability"}}), awscdk.Aws_NO_VALUE())
	b.templates = b.bucket("Templates", nil, templates, policy.Statement{
		Sid: "CustomersRead", When: *b.parameters[ParameterReaders].isSet.LogicalId(), Principal: customers, Actions: []string{"s3:GetObject"}})
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
func (b *builder) ownImage() string {
	return *b.runnerImages.AttrRepositoryUri() + "@" + b.parameters[ParameterDigest].value
}
