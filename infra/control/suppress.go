package control

import (
	"github.com/fairlead/fairlead/infra/internal/nag"
	"github.com/fairlead/fairlead/infra/internal/policy"
)

// suppress suppresses each cdk-nag rule that the stack does not follow, with a reason.
// The reason for a wildcard permission is the Why of its grant, for exactly that
// resource.
func (b *builder) suppress() error {
	for name, role := range b.roles {
		var statements []policy.Statement
		reasons := map[string]string{}
		for _, g := range access[name] {
			statements = append(statements, g.statement(b))
			reasons[g.Sid] = g.Why
		}
		if err := nag.Wildcards(b.stack, role, statements, reasons); err != nil {
			return err
		}
	}
	err := nag.Wildcards(b.stack, b.publisherRole, b.publisherAccess(), map[string]string{
		"OwnArtifacts":  "the repositories of one app, one for each component",
		"RegistryLogin": "the action knows no resource; it opens what the other statements allow",
	})
	if err != nil {
		return err
	}
	err = nag.Wildcards(b.stack, b.builderRole, b.builderAccess(), map[string]string{
		"OwnFolders":        "the repositories of one app, one for each component; a build's session reads that of its own component",
		"OwnBuiltArtifacts": "the repositories of one app's built artifacts, one for each component",
		"RegistryLogin":     "the action knows no resource; it opens what the other statements allow",
		"OwnBuildFiles":     "the objects of one app's image builds",
		"OwnBuildLogs":      "the streams of one app's image builds, one for each build",
	})
	if err != nil {
		return err
	}
	err = nag.Wildcards(b.stack, b.sessionRole, b.sessionAccess(), map[string]string{
		"OwnLog":        "the streams of one install's group, one for each job and attempt",
		"OwnArtifacts":  "the repositories of one app, one for each component",
		"RegistryLogin": "the action knows no resource; it opens what the other statements allow",
	})
	if err != nil {
		return err
	}
	for _, r := range b.routes {
		nag.Suppress(r, "AwsSolutions-APIG4", "the handlers authenticate each request themselves: an authorizer would decide apart from, and before, what the request asks for")
	}
	for _, q := range b.deadLetters {
		nag.Suppress(q, "AwsSolutions-SQS3", "it is the queue of dead letters; that of the stream, the schedule and the subscription is their failure destination")
	}
	nag.Suppress(b.accessLogs, "AwsSolutions-S1", "it keeps the access logs of the other buckets; logging its own would never end")
	const reason = "what is published holds no secret, and the condition names the accounts that read it; a principal that is gone would block each deployment"
	nag.Suppress(b.templates, "AwsSolutions-S2", reason)
	nag.Suppress(b.runnerImages, "AwsSolutions-ECR1", reason)
	nag.Suppress(b.cancels, "AwsSolutions-DDB3", "a cancel marker is needed for seconds; a restored one would be false")
	if err := b.suppressDirectLaunch(); err != nil {
		return err
	}
	if err := b.suppressCopies(); err != nil {
		return err
	}
	return b.suppressBuild()
}
