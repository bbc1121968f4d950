/** Which conversation is meant. */
export interface Place {
  readonly machineId: string;
  readonly agentId: string;
  readonly conversationId: string;
}
