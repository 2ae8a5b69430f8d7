package xds

import "testing"

// A secret that the client rejects does not affect others: each has a delta response of its own, however the response is made.
func TestSecrets_OnePerResponse(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(SecretURL, "a", "b", "c")
	client := fixture.delta(SecretURL)
	client.ask(SecretURL, "a", "b", "c", "d")
	client.expectAck(SecretURL, nil, "a@1")
	client.nack(client.expect(SecretURL, "b@1"), "there is no such file")
	client.expectAck(SecretURL, nil, "c@1")
	client.expectAck(SecretURL, nil, "-d")
	fixture.set(SecretURL, "a@2", "c@2", "-b")
	client.expectAck(SecretURL, nil, "a@2")
	client.expectAck(SecretURL, nil, "c@2")
	client.expectAck(SecretURL, nil, "-b")

	wildcardClient := fixture.delta(SecretURL)
	wildcardClient.ask(SecretURL)
	wildcardClient.expectAck(SecretURL, nil, "a@2")
	wildcardClient.expectAck(SecretURL, nil, "c@2")
	fixture.set(SecretURL, "a@3", "c@3")
	wildcardClient.expectAck(SecretURL, nil, "a@3")
	wildcardClient.expectAck(SecretURL, nil, "c@3")
	wildcardClient.silence()
}
