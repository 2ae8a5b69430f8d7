// Package check checks the inputs and the environment of a server before it runs: the objects in files and sources and
// the references between them (Linter), the configuration, the machine and the istiod that reads from it (Doctor). It
// also writes a first configuration (InitialConfig), reads objects to be stored (ReadManifest), and packs a report
// without secrets (WriteBundle).
package check
