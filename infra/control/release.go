package control

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscodedeploy"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/nag"
	"github.com/fairlead/fairlead/infra/internal/policy"
)

// alias is the name of the alias by which every caller invokes a function. It names the version
// that serves, so that a new version gets a part of the invocations first.
const alias = "live"

// canary is how CodeDeploy moves an alias: a tenth of the invocations for five minutes, then all.
const canary = "CodeDeployDefault.LambdaCanary10Percent5Minutes"

// aliasARN returns the ARN of the alias of a function, built from the name like functionARN.
func (b *builder) aliasARN(name string) string { return b.functionARN(name) + ":" + alias }

// publish makes the version and the alias of a function from what a version keeps: its code and
// its configuration.
//
// CloudFormation publishes a version when it creates the resource, and creates the resource again
// when its description changes. Lambda refuses to publish a version that equals the last one. So
// the description must change exactly if the code or the configuration does: it has their digest,
// and the values of the parameters that the configuration refers to, because a deployment changes
// these without a change of the template. A description has at most 256 characters.
func (b *builder) publish(name string, f awslambda.CfnFunction, code string, configuration ...any) error {
	text, err := json.Marshal(b.stack.Resolve(configuration)) // references have other texts in each synthesis
	if err != nil {
		return err
	}
	description := []*string{jsii.String(fmt.Sprintf("%x", sha256.Sum256(append([]byte(code), text...)))[:16])}
	for _, id := range slices.Sorted(maps.Keys(b.parameters)) {
		if strings.Contains(string(text), `"`+id+`"`) || strings.Contains(string(text), `"Has`+id+`"`) {
			description = append(description, jsii.String(b.parameters[id].value))
		}
	}
	id := titles[name]
	b.versions[name] = awslambda.NewCfnVersion(b.stack, jsii.String(id+"Version"), &awslambda.CfnVersionProps{
		FunctionName: f.Ref(), Description: awscdk.Fn_Join(jsii.String(" "), &description),
	})
	b.aliases[name] = awslambda.NewCfnAlias(b.stack, jsii.String(id+"Alias"), &awslambda.CfnAliasProps{
		FunctionName: f.Ref(), FunctionVersion: b.versions[name].AttrVersion(), Name: jsii.String(alias),
	})
	return nil
}

// canaryAlarm fires at the first error of a new version. CloudWatch has this metric only while
// two versions share the alias.
func (b *builder) canaryAlarm(name string) alarm {
	return alarm{id: titles[name] + "Canary", what: "The new version of " + name + " fails: CodeDeploy moves all invocations back to the version before.", namespace: "AWS/Lambda", metric: "Errors",
		dimensions: map[string]string{"FunctionName": b.name + "-" + name, "Resource": b.name + "-" + name + ":" + alias, "ExecutedVersion": *b.versions[name].AttrVersion()},
		statistic:  "Sum", above: 0, periods: 1, period: 60, rollsBack: true}
}

// canaries lets CodeDeploy move the aliases. It goes back to the old version if the new one fails,
// or if the API answers with server errors meanwhile. CloudFormation then rolls the stack back.
func (b *builder) canaries(alarms map[string]awscloudwatch.CfnAlarm) error {
	if b.props.AllAtOnce {
		return nil
	}
	app := awscodedeploy.NewCfnApplication(b.stack, jsii.String("Releases"), &awscodedeploy.CfnApplicationProps{ComputePlatform: jsii.String("Lambda")})
	var functions []string
	for _, name := range Functions {
		functions = append(functions, b.functionARN(name), b.aliasARN(name))
	}
	statements := []policy.Statement{
		{Sid: "MoveAliases", Actions: []string{"lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig"}, Resources: functions},
		{Sid: "ReadAlarms", Actions: []string{"cloudwatch:DescribeAlarms"}, Resources: []string{"*"}},
	}
	role := awsiam.NewCfnRole(b.stack, jsii.String("ReleasesRole"), &awsiam.CfnRoleProps{
		Description:              jsii.String(b.name + ": CodeDeploy moves the aliases of the functions"),
		AssumeRolePolicyDocument: policy.Trust("codedeploy.amazonaws.com", nil),
		Policies:                 []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String("calls"), PolicyDocument: policy.Document(statements...)}},
	})
	for _, name := range Functions {
		watched := []*awscodedeploy.CfnDeploymentGroup_AlarmProperty{{Name: alarms[titles[name]+"Canary"].Ref()}}
		if slices.Contains(servesAPI, name) {
			watched = append(watched, &awscodedeploy.CfnDeploymentGroup_AlarmProperty{Name: alarms["APIErrors"].Ref()})
		}
		group := awscodedeploy.NewCfnDeploymentGroup(b.stack, jsii.String(titles[name]+"Releases"), &awscodedeploy.CfnDeploymentGroupProps{
			ApplicationName: app.Ref(), ServiceRoleArn: role.AttrArn(), DeploymentConfigName: jsii.String(canary),
			DeploymentStyle: &awscodedeploy.CfnDeploymentGroup_DeploymentStyleProperty{
				DeploymentType: jsii.String("BLUE_GREEN"), DeploymentOption: jsii.String("WITH_TRAFFIC_CONTROL")},
			AlarmConfiguration: &awscodedeploy.CfnDeploymentGroup_AlarmConfigurationProperty{Enabled: jsii.Bool(true), Alarms: watched},
			AutoRollbackConfiguration: &awscodedeploy.CfnDeploymentGroup_AutoRollbackConfigurationProperty{Enabled: jsii.Bool(true),
				Events: jsii.Strings("DEPLOYMENT_FAILURE", "DEPLOYMENT_STOP_ON_ALARM", "DEPLOYMENT_STOP_ON_REQUEST")},
		})
		b.aliases[name].CfnOptions().SetUpdatePolicy(&awscdk.CfnUpdatePolicy{
			CodeDeployLambdaAliasUpdate: &awscdk.CfnCodeDeployLambdaAliasUpdate{ApplicationName: app.Ref(), DeploymentGroupName: group.Ref()}})
	}
	return nag.Wildcards(b.stack, role, statements, map[string]string{"ReadAlarms": "the action describes alarms by name and knows no resource"})
}
