package runnerstack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsssm"
	"github.com/aws/jsii-runtime-go"
)

// modeName returns the name of the SSM parameter with the customer's mode.
func (b *builder) modeName() string { return b.ownPath() + "mode" }

// modeARN returns the ARN of this parameter.
func (b *builder) modeARN() string { return b.arn("ssm", "parameter"+b.modeName()) }

// makeMode makes the parameter. The parameter RunnerState sets its value. The customer may also
// change it directly, which is faster; the next change of RunnerState replaces the value.
func (b *builder) makeMode() {
	b.mode = awsssm.NewCfnParameter(b.stack, jsii.String("RunnerMode"), &awsssm.CfnParameterProps{
		Name: jsii.String(b.modeName()), Type: jsii.String("String"), Tier: jsii.String("Standard"),
		Description:    jsii.String("Fairlead: mode of the runner. paused: it starts no jobs. A reason may follow, which the vendor sees: paused: month-end closing"),
		Value:          awscdk.Token_AsString(onIf(b.p.isEnabled, onIf(b.p.isPaused, "paused", "enabled"), "disabled"), nil),
		AllowedPattern: jsii.String(`^(enabled|paused|draining|disabled)(:.{1,200})?$`),
	})
}
