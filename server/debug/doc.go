// Package debug serves the status of clients to tools of istiod and Envoy: istioctl proxy-status, and CSDS.
package debug
