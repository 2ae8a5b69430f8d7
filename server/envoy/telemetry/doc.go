// Package telemetry makes the access logs and the tracing of listeners from MeshConfig and Telemetry objects.
package telemetry
