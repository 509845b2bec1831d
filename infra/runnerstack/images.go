package runnerstack

import (
	"fmt"
	"strconv"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/fargate"
)

// Images of scripts.
const (
	scriptImages = "ScriptImages"
	// imageEntry is the pattern of one image: HOST/NAME@sha256:DIGEST.
	imageEntry = `([A-Za-z0-9-]+\.)+[A-Za-z0-9-]+(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+@sha256:[0-9a-f]{64}`
	maxImages  = 4
)

// scriptImage returns an image of the parameter, counted from 0; "" if the list is shorter. CloudFormation has no
// length of a list, so the list is filled with empty entries.
func (b *builder) scriptImage(i int) string {
	filled := []*string{b.p.images.ValueAsString()}
	for range maxImages - 1 {
		filled = append(filled, jsii.String(""))
	}
	return *awscdk.Fn_Select(jsii.Number(float64(i)), awscdk.Fn_Split(jsii.String(","), awscdk.Fn_Join(jsii.String(","), &filled), nil))
}

// imageConditions makes a condition for each place of the list: whether it has an image that no earlier place has.
func (b *builder) imageConditions() {
	for i := range maxImages {
		of := []awscdk.ICfnConditionExpression{awscdk.Fn_ConditionEquals(b.p.isolation.ValueAsString(), eachTask)}
		image := b.scriptImage(i)
		for _, not := range append([]string{""}, b.earlierImages(i)...) {
			of = append(of, awscdk.Fn_ConditionNot(awscdk.Fn_ConditionEquals(image, not)))
		}
		b.p.hasImage = append(b.p.hasImage, awscdk.NewCfnCondition(b.stack, jsii.String(fmt.Sprintf("HasScriptImage%d", i+1)),
			&awscdk.CfnConditionProps{Expression: awscdk.Fn_ConditionAnd(of...)}))
	}
}

func (b *builder) earlierImages(than int) (images []string) {
	for i := range than {
		images = append(images, b.scriptImage(i))
	}
	return images
}

// makeScriptTasks makes a task definition for each image of the parameter. They differ from that of steps in the image
// only: roles, log, size and limits are the same. The agent cannot register one, because the author of a definition
// chooses what runs with the roles of steps.
func (b *builder) makeScriptTasks() {
	for i, has := range b.p.hasImage {
		task := b.stepDefinition(scriptFamily(i), b.scriptImage(i), *b.p.image.ValueAsString()).Definition(b.stack, fmt.Sprintf("ScriptTask%d", i+1))
		task.CfnOptions().SetCondition(has)
		b.scriptTasks = append(b.scriptTasks, task)
	}
}

// scriptFamily returns the end of the family of an image's task definition.
func scriptFamily(i int) string { return "-script-" + strconv.Itoa(i+1) }

// stepDefinition describes the task of a step. runner is the runner's image if image is that of a script.
func (b *builder) stepDefinition(family, image, runner string) fargate.Task {
	return fargate.Task{Family: b.family() + family, Image: image, Runner: runner, Size: fargate.Size{CPU: b.ofSize("Cpu"), Memory: b.ofSize("Memory")}, Execution: b.execution, Log: b.log}
}

// imagesJSON returns the field of the agent's file with the task definitions of images; "" without images. The parameter's
// pattern permits no quotes and no backslashes.
func (b *builder) imagesJSON() string {
	entry := func(i int) string { return fmt.Sprintf(`"%s":"%s"`, b.scriptImage(i), *b.scriptTasks[i].Ref()) }
	field := `,"image_definitions":{` + entry(0) // any list has a first image
	for i, has := range b.p.hasImage[1:] {
		field += *awscdk.Token_AsString(onIf(has, ","+entry(i+1), ""), nil)
	}
	return *awscdk.Token_AsString(onIf(b.p.hasImage[0], field+"}", ""), nil)
}
