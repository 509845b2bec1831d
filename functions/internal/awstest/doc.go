// Package awstest holds the tests of the control plane as AWS runs it: an
// account is made from the synthesised template, on servers of AWS's kind, the
// functions' own binaries run under a Lambda runtime API, and a real runner
// deploys a real app through all of it.
//
// What has no server here is stood in for, each by what its comment says:
// API Gateway by a front, the stream's and the queues' event sources by a pump
// that batches, filters, repeats and gives up as Lambda documents it, STS by
// ststest, Ed25519 keys of KMS by kmstest, what is in ECR's repositories by the
// registry of the embedded server.
package awstest
