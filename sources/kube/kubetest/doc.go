// Package kubetest is an API server for tests, with controlled objects and faults.
package kubetest
