package control

import (
	_ "embed"
	"fmt"
	"regexp"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscodebuild"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/policy"
)

// Images configures the CodeBuild project that builds images from Dockerfiles for the
// build runner.
type Images struct {
	Architecture string // "x86_64", the default, or "arm64": the platform of an image that names none
	Size         string // a size of CodeBuild's machines: "Small", the default, "Medium" or "Large"
	BuildKit     string // the image of BuildKit that a build starts; default: defaultBuildKit
	Limit        int    // builds at the same time; 0: the account's quota
}

// defaultBuildKit is the version with which the tests of this repository build images.
const defaultBuildKit = "moby/buildkit:v0.34.2"

// A build waits at most imageQueued minutes for a machine, and then runs at most imageRuns
// minutes. The URLs with which it reads its context and writes its image expire an hour
// after the step asked for access. The rest of this hour is for the upload of the context
// and for the preparation of the machine.
const (
	imageQueued = 10
	imageRuns   = 40
)

//go:embed image-build.yaml
var imageBuildspec string

var buildKitPattern = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9./:_-]*(:[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64})$`)

// machines are CodeBuild's sizes, which it has for both architectures.
var machines = map[string]string{"Small": "BUILD_GENERAL1_SMALL", "Medium": "BUILD_GENERAL1_MEDIUM", "Large": "BUILD_GENERAL1_LARGE"}

// standard has the type of a build environment and its standard image by architecture.
// CodeBuild keeps these images on its machines, so a build does not wait for one.
var standard = map[string][2]string{
	"x86_64": {"LINUX_CONTAINER", "aws/codebuild/amazonlinux-x86_64-standard:5.0"},
	"arm64":  {"ARM_CONTAINER", "aws/codebuild/amazonlinux-aarch64-standard:3.0"},
}

// check validates the fields and sets the defaults.
func (p *Images) check() error {
	for field, value := range map[*string]string{&p.Architecture: "x86_64", &p.Size: "Small", &p.BuildKit: defaultBuildKit} {
		if *field == "" {
			*field = value
		}
	}
	if _, known := standard[p.Architecture]; !known {
		return fmt.Errorf("imageBuildArchitecture is %q; use x86_64 or arm64", p.Architecture)
	}
	if _, known := machines[p.Size]; !known {
		return fmt.Errorf("imageBuildSize is %q; use Small, Medium or Large", p.Size)
	}
	if !buildKitPattern.MatchString(p.BuildKit) {
		return fmt.Errorf("imageBuildKit is %q; use an image of BuildKit with its tag or digest, such as %s", p.BuildKit, defaultBuildKit)
	}
	return nil
}

// The names are known before the resources exist, so that the Runner API can name them
// whether there is a build runner or not.
func (b *builder) imageProject() string  { return b.name + "-image-build" }
func (b *builder) imageLogGroup() string { return "/" + b.name + "/image-build" }

// buildBucket makes the bucket with the contexts and the images of builds. S3's own key
// encrypts it: with the data key, each build would need a permission on the key that also
// encrypts the tables and the states. The bucket exists without a build runner, too: it
// costs nothing, and CloudFormation could not delete it before it is empty.
func (b *builder) buildBucket() {
	b.builds = b.bucket("Builds", "", awss3.CfnBucket_RuleProperty{Id: jsii.String("Expire"), Status: jsii.String("Enabled"), ExpirationInDays: jsii.Number(1),
		AbortIncompleteMultipartUpload: &awss3.CfnBucket_AbortIncompleteMultipartUploadProperty{DaysAfterInitiation: jsii.Number(1)},
		NoncurrentVersionExpiration:    &awss3.CfnBucket_NoncurrentVersionExpirationProperty{NoncurrentDays: jsii.Number(1)}})
}

// makeImageProject makes the project that builds images. What a build runs is the vendor's
// Dockerfile, so its role may only write the project's log: a build reads its context and
// writes its image with two URLs that the step of the build job signs.
func (b *builder) makeImageProject() {
	p := b.props.Build.Images
	log := awslogs.NewCfnLogGroup(b.stack, jsii.String("BuildRunnerImagesLog"), &awslogs.CfnLogGroupProps{
		LogGroupName: jsii.String(b.imageLogGroup()), RetentionInDays: jsii.Number(float64(b.props.LogDays)),
	})
	log.ApplyRemovalPolicy(awscdk.RemovalPolicy_DESTROY, nil)
	b.build.writes = policy.Statement{Sid: "OwnLog", Actions: []string{"logs:CreateLogStream", "logs:PutLogEvents"}, Resources: []string{*log.AttrArn()}}
	project := b.arn("codebuild", "project/"+b.imageProject())
	b.build.imageRole = awsiam.NewCfnRole(b.stack, jsii.String("BuildRunnerImagesRole"), &awsiam.CfnRoleProps{
		Description: jsii.String(b.name + ": a build of an image, which may only write its log"),
		AssumeRolePolicyDocument: policy.Trust("codebuild.amazonaws.com", map[string]map[string]any{
			"StringEquals": {"aws:SourceAccount": b.account}, "ArnEquals": {"aws:SourceArn": project},
		}),
		Policies: []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String("log"), PolicyDocument: policy.Document(b.build.writes)}},
	})
	props := &awscodebuild.CfnProjectProps{
		Name: jsii.String(b.imageProject()), Description: jsii.String(b.name + ": builds images from Dockerfiles, without a right to push"),
		ServiceRole: b.build.imageRole.AttrArn(),
		Source:      &awscodebuild.CfnProject_SourceProperty{Type: jsii.String("NO_SOURCE"), BuildSpec: jsii.String(imageBuildspec)},
		Artifacts:   &awscodebuild.CfnProject_ArtifactsProperty{Type: jsii.String("NO_ARTIFACTS")},
		Environment: &awscodebuild.CfnProject_EnvironmentProperty{
			Type: jsii.String(standard[p.Architecture][0]), Image: jsii.String(standard[p.Architecture][1]), ComputeType: jsii.String(machines[p.Size]),
			PrivilegedMode: jsii.Bool(true), // Docker needs it
			EnvironmentVariables: []*awscodebuild.CfnProject_EnvironmentVariableProperty{
				{Name: jsii.String("FAIRLEAD_BUILDKIT_IMAGE"), Value: jsii.String(p.BuildKit), Type: jsii.String("PLAINTEXT")},
			},
		},
		LogsConfig: &awscodebuild.CfnProject_LogsConfigProperty{
			CloudWatchLogs: &awscodebuild.CfnProject_CloudWatchLogsConfigProperty{Status: jsii.String("ENABLED"), GroupName: log.Ref()},
		},
		TimeoutInMinutes: jsii.Number(imageRuns), QueuedTimeoutInMinutes: jsii.Number(imageQueued), Visibility: jsii.String("PRIVATE"),
	}
	if p.Limit > 0 {
		props.ConcurrentBuildLimit = jsii.Number(float64(p.Limit))
	}
	b.build.images = awscodebuild.NewCfnProject(b.stack, jsii.String("BuildRunnerImages"), props)
}
