// Package artifact turns a component's source folder into an OCI artifact that
// is named by its content, and back.
//
// Pack reads a folder and makes one uncompressed tar: files only, sorted, with
// no times, owners or modes beyond "executable or not". The same content has
// therefore the same digest on every machine, and in every later version of
// Go: the output of a compressor is promised by nobody, and a new toolchain
// must not turn unchanged source into a new app version. Sources are small
// texts, so little is lost, and an archive that is not compressed cannot be a
// compression bomb.
//
// Push stores the artifact in a registry and Pull fetches, verifies and unpacks
// it. The archive that Unpack reads is treated as hostile whoever made it.
// RegistryHandler is the registry of the embedded control plane.
package artifact
