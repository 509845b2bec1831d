// Package awstest tests the control plane as AWS runs it. A test creates the
// resources of the synthesized template on servers compatible with AWS's. The
// functions' own binaries run under a Lambda runtime API, and a real runner
// deploys a real app through them.
//
// These parts of AWS have no server here and are replaced:
//   - API Gateway: by a front.
//   - The event sources of the stream and the queues: by pumps, which batch,
//     filter, retry and discard as Lambda documents it.
//   - STS and IAM: by iamtest. Each request is checked with the policies of the templates.
//   - Ed25519 keys of KMS: by kmstest.
//   - The content of ECR's repositories: by the registry of the embedded server.
package awstest
